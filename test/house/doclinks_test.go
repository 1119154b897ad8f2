package house_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocLinks follows the links of all doc comments, in this module and the adapters, to a
// declaration.
func TestDocLinks(t *testing.T) {
	links := docLinks{known: make(map[string]*doc.Package)}
	for _, module := range libraries {
		links.list(t, module)
	}
	if len(links.ours) < 50 {
		t.Fatalf("%d packages: not those of three modules", len(links.ours))
	}
	none(t, links.problems(t))
}

func TestDocLinksBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"a/a.go": `// Package a has links: [T], [T.M], [T.F], [I.N], [V], [strings.Builder], [strings.Builder.Len],
// [example.org/b.B], [github.com/nodeattest/nodeattest/b.B], [errors.New], [Gone], x[V], [1],
// [T.gone] and [b.Gone].
package a

import (
	"strings"

	"github.com/nodeattest/nodeattest/b"
)

// T has [T.Gone], [*T], [hidden] and [strings.Gone].
type T struct {
	// F has [nothing].
	F int
}

// M is for [b.B], [b.b] and [c.C]; in [code] there is a []byte.
//
//	this is code: [hidden]
func (T) M(strings.Builder, b.B) {}

type I interface {
	N() // has no doc comment: [Gone]
}

var V int // [Gone]

// hidden may link to [hidden2], not to [hidden3].
var hidden, hidden2 int
`,
		"b/b.go":      "package b\n\ntype B int\n\nvar b B\n",
		"a/a_test.go": "package a\n\n// Test has [Gone].\nfunc Test() {}\n",
	})
	links := docLinks{known: make(map[string]*doc.Package)}
	links.list(t, root)
	exactly(t, links.problems(t),
		"a.go:1: [example.org/b.B]", "a.go:1: [Gone]", "a.go:1: [T.gone]", "a.go:1: [b.Gone]",
		"a.go:12: [T.Gone]", "a.go:12: [hidden]", "a.go:12: [strings.Gone]", "a.go:14: [nothing]",
		"a.go:18: [b.b]", "a.go:18: [c.C]", "a.go:18: [code]", "a.go:29: [hidden3]")
}

// docLinks are the packages whose doc comments are looked at, and those they link to.
type docLinks struct {
	ours  []string                // the folders of the packages
	dirs  map[string]string       // of every package that ours import, by import path
	known map[string]*doc.Package // packages that were parsed, by import path
}

// list adds the packages of a module.
func (l *docLinks) list(t *testing.T, root string) {
	t.Helper()
	out, err := goCommand(root, targets[0], "list", "-e", "-deps", "-f", "{{.ImportPath}};{{.Dir}};{{.DepOnly}}", "./...", "std")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if l.dirs == nil {
		l.dirs = make(map[string]string)
	}
	for line := range strings.Lines(out) {
		field := strings.Split(strings.TrimSpace(line), ";")
		if len(field) != 3 || field[1] == "" {
			continue
		}
		_, seen := l.dirs[field[0]]
		l.dirs[field[0]] = field[1]
		if own := ownPath(field[0]); own != "" && field[2] == "false" && !seen {
			l.ours = append(l.ours, field[0])
		}
	}
}

// load parses a package, or returns nil without one.
func (l *docLinks) load(t *testing.T, path string) (*doc.Package, []*ast.File, *token.FileSet) {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(l.dirs[path], "*.go"))
	if err != nil || l.dirs[path] == "" {
		return nil, nil, nil
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 || file.Name.Name == files[0].Name.Name {
			files = append(files, file)
		}
	}
	p, err := doc.NewFromFiles(fset, files, path, doc.AllDecls|doc.PreserveAST)
	if err != nil {
		t.Fatal(err)
	}
	return p, files, fset
}

// declares reports whether a package has a name, or a type with a method or field.
func (l *docLinks) declares(t *testing.T, path, recv, name string) bool {
	t.Helper()
	p, ok := l.known[path]
	if !ok {
		p, _, _ = l.load(t, path)
		l.known[path] = p
	}
	return p != nil && p.Parser().LookupSym(recv, name)
}

// problems names each link that leads nowhere, and each that leads a reader of the
// documentation to names that he cannot see.
func (l *docLinks) problems(t *testing.T) (problems []string) {
	t.Helper()
	slices.Sort(l.ours)
	for _, path := range l.ours {
		p, files, fset := l.load(t, path)
		l.known[path] = p
		for _, file := range files {
			eachComment(file, func(c *ast.CommentGroup, exported bool) {
				at := fset.Position(c.Pos())
				name, err := filepath.Rel(mustGetwd(t), at.Filename)
				if err != nil {
					name = at.Filename
				}
				for _, reason := range l.wrong(t, p, c.Text(), exported) {
					problems = append(problems, fmt.Sprintf("%s:%d: %s", name, at.Line, reason))
				}
			})
		}
	}
	return problems
}

func mustGetwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// bracketed matches text that looks like a link and which go/doc does not link.
var bracketed = regexp.MustCompile(`(^|[\s(,"'])\[(\*?[A-Za-z_][\w./]*)\]($|[\s.,:;)"'!?])`)

// wrong returns the faults of the links in one comment.
func (l *docLinks) wrong(t *testing.T, p *doc.Package, text string, exported bool) (wrong []string) {
	t.Helper()
	visit := func(text []comment.Text) {
		for _, piece := range text {
			switch piece := piece.(type) {
			case *comment.DocLink:
				path := piece.ImportPath
				if path == "" {
					path = p.ImportPath
				}
				if piece.Name == "" && l.dirs[path] == "" || piece.Name != "" && !l.declares(t, path, piece.Recv, piece.Name) {
					wrong = append(wrong, fmt.Sprintf("%s: %s does not declare that", linkText(piece), path))
				}
			case comment.Plain:
				for _, found := range bracketed.FindAllStringSubmatch(string(piece), -1) {
					recv, name, _ := cutLast(strings.TrimPrefix(found[2], "*"))
					switch {
					case !l.declares(t, p.ImportPath, recv, name):
						wrong = append(wrong, fmt.Sprintf("[%s]: no declaration of that name, or its package is not imported", found[2]))
					case exported:
						wrong = append(wrong, fmt.Sprintf("[%s]: not exported, in the comment of what is", found[2]))
					}
				}
			}
		}
	}
	var blocks func(content []comment.Block)
	blocks = func(content []comment.Block) {
		for _, block := range content {
			switch block := block.(type) {
			case *comment.Heading:
				visit(block.Text)
			case *comment.Paragraph:
				visit(block.Text)
			case *comment.List:
				for _, item := range block.Items {
					blocks(item.Content)
				}
			}
		}
	}
	blocks(p.Parser().Parse(text).Content)
	return wrong
}

func linkText(link *comment.DocLink) string {
	var text strings.Builder
	text.WriteByte('[')
	for _, piece := range link.Text {
		if plain, ok := piece.(comment.Plain); ok {
			text.WriteString(string(plain))
		}
	}
	text.WriteByte(']')
	return text.String()
}

// cutLast cuts a name of the form recv.name.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndex(s, ".")
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// eachComment calls f for the doc comment of each declaration in a file, with whether what
// it documents is exported.
func eachComment(file *ast.File, f func(c *ast.CommentGroup, exported bool)) {
	say := func(c *ast.CommentGroup, exported bool) {
		if c != nil {
			f(c, exported)
		}
	}
	say(file.Doc, true)
	fields := func(n ast.Node, exported bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				say(field.Doc, exported && slices.ContainsFunc(field.Names, (*ast.Ident).IsExported))
			}
			return true
		})
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			exported := decl.Name.IsExported()
			if decl.Recv != nil {
				ast.Inspect(decl.Recv.List[0].Type, func(n ast.Node) bool {
					recv, ok := n.(*ast.Ident)
					exported = exported && (!ok || recv.IsExported())
					return !ok
				})
			}
			say(decl.Doc, exported)
		case *ast.GenDecl:
			some := false
			for _, spec := range decl.Specs {
				exported := false
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					exported = spec.Name.IsExported()
					say(spec.Doc, exported)
					fields(spec.Type, exported)
				case *ast.ValueSpec:
					exported = slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported)
					say(spec.Doc, exported)
				}
				some = some || exported
			}
			say(decl.Doc, some)
		}
	}
}
