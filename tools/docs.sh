#!/bin/sh
# Builds the documentation in build/docs: the site of docs/ by mkdocs, the API reference of include/weft by Doxygen.
# Warnings are errors, as are public types without a comment. The last line is the verdict.
set -u

cd "$(dirname "$0")/.." || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export PYTHONDONTWRITEBYTECODE=1

refuse() {
    tail -n 40 "$log"
    echo "docs: $1"
    exit 1
}

# mkdocs empties its folder first, so the reference follows.
mkdocs build --strict --quiet -f tools/docs/mkdocs.yml >"$log" 2>&1 || refuse "mkdocs failed on docs/"
doxygen tools/docs/Doxyfile >"$log" 2>&1 || refuse "doxygen failed on include/weft"
# A member may say all by its name; a type may not.
sed -i '/warning: Member .* is not documented\.$/d' "$log"
[ ! -s "$log" ] || refuse "doxygen has warnings on include/weft"
if grep -rlE '<(script|link|img)[^>]+(src|href)="?(https?:)?//' --include='*.html' build/docs >"$log"; then
    refuse "these pages load from a network"
fi
echo "docs: $(find build/docs -name '*.html' | wc -l) pages: build/docs/index.html, API reference build/docs/api/index.html"
