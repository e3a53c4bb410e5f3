"""Parts of the site's configuration."""
