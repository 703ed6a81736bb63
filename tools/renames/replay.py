#!/usr/bin/env python3
"""Replays rename maps on a checkout: replay.py [-n] [-q] [--only KINDS] DIR MAP.tsv...

Columns of a map: kind, old, new, scope, note (tab-separated; empty lines and lines that begin with
'#' are skipped). Rows are applied top to bottom, over all maps in the order given.

  word    an identifier, replaced at word boundaries
  text    an exact string
  wire    as word when `old` is an identifier, else as text
  file    a path, moved by `git mv` (plain rename outside of git)
  public  listed, applied (as wire) only where the note contains [language.md]

scope: space-separated path prefixes; a path of an earlier `file` row also matches by the name that
the file had before it was moved. Empty or '.': all files.
Notes may carry switches:
  [code]  only outside of comments, string or character literals and include paths (C++; # comments in
          Python, shell and CMake are skipped, too, strings there are not)
  [docs]  only in .md files and comments of C++ files
  [zero]  no warning when nothing is replaced
Prints the number of replacements of each row and warns for rows with 0. -n writes nothing.
"""
import argparse
import os
import re
import subprocess
import sys

SKIP = ('.git/', 'build/')
CXX = ('.h', '.cc', '.cpp', '.hpp', '.inc')
HASH = ('.py', '.sh', '.cmake', 'CMakeLists.txt', 'Makefile')

CXX_TOKEN = re.compile(
    r'//[^\n]*(?:\\\n[^\n]*)*|/\*.*?\*/'
    r'|R"(?P<d>[^()\\ \n]{0,16})\(.*?\)(?P=d)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'", re.S)
ANGLED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*<[^>\n]*>', re.M)


def masked_spans(path, text):
    """Spans of comments and of literals."""
    comments, literals = [], []
    if path.endswith(CXX):
        for m in CXX_TOKEN.finditer(text):
            (comments if m[0].startswith('/') else literals).append(m.span())
        literals += [m.span() for m in ANGLED.finditer(text)]
        literals.sort()
    elif path.endswith(HASH):
        comments = [m.span() for m in re.finditer(r'(?:^|(?<=\s))#[^\n]*', text)]
    return comments, literals


def substitute(path, text, pattern, new, note):
    if '[code]' not in note and '[docs]' not in note:
        return pattern.subn(lambda m: new, text)
    if '[docs]' in note and path.endswith('.md'):
        return pattern.subn(lambda m: new, text)
    comments, literals = masked_spans(path, text)
    inside = sorted(comments + (literals if '[code]' in note else []))
    out, at, count, i = [], 0, 0, 0
    for m in pattern.finditer(text):
        while i < len(inside) and inside[i][1] <= m.start():
            i += 1
        hit = i < len(inside) and inside[i][0] <= m.start()
        if hit == ('[code]' in note):
            continue
        out += [text[at:m.start()], new]
        at, count = m.end(), count + 1
    return ''.join(out) + text[at:], count


class Checkout:
    def __init__(self, root, dry):
        self.root, self.dry = os.path.abspath(root), dry
        top = subprocess.run(['git', '-C', self.root, 'rev-parse', '--show-toplevel'],
                             capture_output=True, text=True)
        self.is_git = top.returncode == 0 and os.path.realpath(top.stdout.strip()) == os.path.realpath(self.root)
        self.texts, self.former = {}, {}
        self.changed = set()
        for path in self.list():
            full = os.path.join(self.root, path)
            if os.path.islink(full) or not os.path.isfile(full):
                continue
            try:
                with open(full, encoding='utf-8', newline='') as f:
                    self.texts[path] = f.read()
            except UnicodeDecodeError:
                self.texts[path] = None  # Binary: can be moved, is never changed.

    def list(self):
        if self.is_git:
            out = subprocess.run(['git', '-C', self.root, 'ls-files', '-z'], capture_output=True,
                                 check=True).stdout.decode()
            return [p for p in out.split('\0') if p]
        found = []
        for base, dirs, files in os.walk(self.root):
            dirs[:] = [d for d in dirs if d not in ('.git', 'build')]
            found += [os.path.relpath(os.path.join(base, f), self.root) for f in files]
        return sorted(found)

    def in_scope(self, path, scope):
        names = [path] + self.former.get(path, [])
        return not scope or any(n.startswith(s) for s in scope for n in names)

    def replace(self, pattern, new, scope, note):
        count, files = 0, 0
        for path, text in self.texts.items():
            if text is None or path.startswith(SKIP) or not self.in_scope(path, scope):
                continue
            if not pattern.search(text):
                continue
            changed, n = substitute(path, text, pattern, new, note)
            if n:
                self.texts[path] = changed
                self.changed.add(path)
                count, files = count + n, files + 1
        return count, files

    def move(self, old, new):
        moved = [p for p in self.texts if p == old or p.startswith(old.rstrip('/') + '/')]
        if old not in self.texts and not moved:
            return 0
        for path in moved:
            to = new + path[len(old.rstrip('/')):] if path != old else new
            if to in self.texts or os.path.lexists(os.path.join(self.root, to)):
                sys.exit(f'replay: {path} -> {to}: the target exists')
            if not self.dry:
                os.makedirs(os.path.dirname(os.path.join(self.root, to)) or '.', exist_ok=True)
                if self.is_git:
                    subprocess.run(['git', '-C', self.root, 'mv', path, to], check=True)
                else:
                    os.rename(os.path.join(self.root, path), os.path.join(self.root, to))
            self.former[to] = self.former.pop(path, []) + [path]
            self.texts[to] = self.texts.pop(path)
            if path in self.changed:
                self.changed.remove(path)
                self.changed.add(to)
        return len(moved)

    def write(self):
        if self.dry:
            return
        for path in sorted(self.changed):
            with open(os.path.join(self.root, path), 'w', encoding='utf-8', newline='') as f:
                f.write(self.texts[path])


def rows_of(path):
    with open(path, encoding='utf-8') as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip('\n')
            if not line.strip() or line.startswith('#') or line.startswith('kind\t'):
                continue
            fields = line.split('\t')
            if len(fields) < 3 or len(fields) > 5:
                sys.exit(f'{path}:{number}: {len(fields)} columns')
            fields += [''] * (5 - len(fields))
            kind, old, new, scope, note = fields
            if kind not in ('word', 'text', 'wire', 'file', 'public'):
                sys.exit(f'{path}:{number}: unknown kind {kind}')
            if not old:
                sys.exit(f'{path}:{number}: nothing to replace')
            yield f'{os.path.basename(path)}:{number}', kind, old, new, [
                s for s in scope.split() if s != '.'], note


def pattern_of(kind, old):
    is_word = re.fullmatch(r'[A-Za-z_]\w*', old) is not None
    if kind == 'word' and not is_word:
        sys.exit(f'replay: {old!r} is no word')
    if is_word and kind != 'text':
        return re.compile(r'\b' + old + r'\b')
    return re.compile(re.escape(old))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('-n', '--dry-run', action='store_true')
    parser.add_argument('-q', '--quiet', action='store_true', help='only warnings and the total')
    parser.add_argument('--only', help='kinds, comma-separated')
    parser.add_argument('checkout')
    parser.add_argument('maps', nargs='+')
    args = parser.parse_args()
    checkout = Checkout(args.checkout, args.dry_run)
    only = args.only.split(',') if args.only else None
    total = zeros = listed = 0
    for path in args.maps:
        for where, kind, old, new, scope, note in rows_of(path):
            if only and kind not in only:
                continue
            if kind == 'public' and '[language.md]' not in note:
                listed += 1
                continue
            if kind == 'file':
                count, files = checkout.move(old, new), 1
            else:
                count, files = checkout.replace(pattern_of(kind, old), new, scope, note)
            total += count
            if count == 0 and '[zero]' not in note:
                zeros += 1
                print(f'WARNING {where}: {kind} {old!r} -> {new!r}: nothing replaced')
            elif not args.quiet:
                print(f'{count:6} in {files:3}  {where}: {kind} {old!r} -> {new!r}')
    checkout.write()
    print(f'{total} replacements, {zeros} rows without any, {listed} public rows listed only')


if __name__ == '__main__':
    main()
