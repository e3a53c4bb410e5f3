"""Links of docstrings and of Markdown pages that Sphinx does not make by itself."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).parents[2]
# Pages of the repository that the site has under another name, and pages whose text is a file of the repository.
PAGES = {"../README.md": "index", "../CONTRIBUTING.md": "contributing", "../CHANGELOG.md": "changelog"}
COPIES = {page: target.removeprefix("../") for target, page in PAGES.items() if page != "index"}
# What a bare name may mean, and a name of a class and of its member.
OBJECTS, MEMBERS = ("class", "function", "exception"), ("method", "property", "attribute")
# Folders whose modules are parts of the package.
PACKAGES = {"torchonline": "torchonline", "models": "torchonline/models", "callbacks": "torchonline/callbacks"}


def to_results(text: str) -> str:
    """Lead links to the scripts of the papers to the pages of their results, which GitHub does not have."""

    def target(match: re.Match[str]) -> str:
        page = f"results/{match[1] or 'index'}.md"
        return f"]({page})" if (ROOT / "docs" / page).exists() else match[0]

    return re.sub(r"\]\(\.\./examples/papers/(?:results|(\w+)\.py)\)", target, text)


def copy_page(app: Any, page: str, source: list[str]) -> None:
    """Fill a page with the file of the repository that it shows; lead links to such files to their pages."""
    source[0] = to_results(source[0])
    if page in COPIES:
        text = (ROOT / COPIES[page]).read_text()
        text = re.sub(r"\]\((?!https?:|#|docs/)", "](../", text)
        source[0] = text.replace("](docs/", "](")
    for target, name in PAGES.items():
        source[0] = re.sub(rf"\]\({re.escape(target)}(#[\w-]*)?\)", rf"]({name}.md)", source[0])


def link_pages(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the names of pages in a docstring, such as docs/ridge.md, into links."""
    for number, line in enumerate(lines):
        lines[number] = re.sub(r"(?<![\w/`])docs/(\w+)\.md(?:#[\w-]+)?", r":doc:`/\1`", line)


def _public_name(env: Any, target: str, kinds: tuple[str, ...] = OBJECTS) -> str | None:
    """Return the full name of a public class or function, from the last part of it: the shortest if there are several."""
    objects = env.domains["py"].objects
    target = target.removeprefix("torchonline.")
    found = [name for name, entry in objects.items() if name == target or name.endswith("." + target)]
    found = [name for name in found if objects[name].objtype in kinds]
    return min(found, key=lambda name: (name.count("."), name)) if found else None


def _name_of_member(env: Any, node: pending_xref) -> str | None:
    """Return the full name of a member, :meth:`OFUL.step`, or :meth:`step` in a class whose base shows it."""
    owner, _, member = node["reftarget"].rpartition(".")
    if owner:
        return _public_name(env, f"{owner.rpartition('.')[2]}.{member}", MEMBERS)
    cls = getattr(import_module(node["py:module"]), node["py:class"] or "", None)
    found = (_public_name(env, f"{base.__name__}.{member}", MEMBERS) for base in getattr(cls, "__mro__", ()))
    return next(filter(None, found), None)


def find_by_last_name(app: Any, env: Any, node: pending_xref, content: nodes.Node) -> nodes.Node | None:
    """Resolve names that Sphinx does not: :class:`OFUL` from anywhere, members of bases, and parts of the package."""
    if node.get("refdomain") != "py":
        return None
    if node["reftype"] == "mod":
        page = f"reference/{node['reftarget'].removeprefix('torchonline.')}"
        return make_refnode(app.builder, node["refdoc"], page, "", content) if page in env.found_docs else None
    target = node["reftarget"]
    if node["reftype"] == "meth":
        name = _name_of_member(env, node)
    else:
        name = _public_name(env, target)
        if name is None and target.startswith("torchonline."):
            # A signature names the module that defines a class, and the reference a shorter one.
            name = _public_name(env, target.rpartition(".")[2])
    if name is None:
        return None
    entry = env.domains["py"].objects[name]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, name)


def link_names(app: Any, doctree: nodes.document, page: str) -> None:
    """Link a public name in a Markdown page to its place in the reference, once in a section.

    Names with a capital letter are linked as they stand. Others, which may be words of English, are linked as calls or with
    their module: ``report(log)``, ``torchonline.report``.
    """
    if Path(app.env.doc2path(page)).suffix != ".md":
        return
    seen: set[tuple[Any, str]] = set()
    for literal in list(doctree.findall(nodes.literal)):
        match = re.fullmatch(r"((?:torchonline\.)?)(\w+(?:\.\w+)*)(\(.*\))?", literal.astext(), re.DOTALL)
        if match is None or any(isinstance(node, (nodes.title, nodes.reference)) for node in _above(literal)):
            continue
        module, target, call = match.groups()
        if not (module or call or target[0].isupper()):
            continue
        name = _public_name(app.env, target)
        section = next((node for node in _above(literal) if isinstance(node, nodes.section)), None)
        if name is not None and (id(section), name) not in seen:
            seen.add((id(section), name))
            entry = app.env.domains["py"].objects[name]
            literal.replace_self(
                make_refnode(app.builder, page, entry.docname, entry.node_id, literal.deepcopy(), name)
            )


def _above(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield the nodes that a node is in, from the nearest."""
    while node.parent is not None:
        node = node.parent
        yield node


def link_sources(app: Any, doctree: nodes.document) -> None:
    """Lead links to modules to their highlighted source."""
    up = "../" * app.env.docname.count("/")
    for node in list(doctree.findall(download_reference)):
        first, _, rest = node["reftarget"].removeprefix("../").partition("/")
        if first in PACKAGES and rest.endswith(".py"):
            address = f"{up}_modules/{PACKAGES[first]}/{rest.removesuffix('.py').removesuffix('/__init__')}.html"
            node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=True))


def drop_back_links(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Remove the links from a module's source to the reference: some lead to members that the reference leaves out."""
    if page.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back" href="[^"]*">\[docs\]</a>', "", context["body"])
