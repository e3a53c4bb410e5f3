"""The version of this library, and its address."""

from importlib import metadata


def version() -> str:
    """Return the version of the installed package.

    In a checkout that is not installed it is ``0+unknown``. Releases and the commits between them get their versions from git
    tags when the package is built. An editable installation keeps the version from the time of the installation.
    """
    try:
        return metadata.version("torchonline")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def home() -> str:
    """Return the first address that the installed package names, or an empty string."""
    try:
        addresses = metadata.metadata("torchonline").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    # Such as "Homepage, https://..."
    return next((address.partition(",")[2].strip() for address in addresses), "")
