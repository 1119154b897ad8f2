package nodeattest_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

func TestDocumented(t *testing.T) {
	none(t, documentedProblems(loadTree(t, ".")))
}

func TestDocumentedBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"oid/oid.go": `// Package oid is documented.
package oid

// Good is documented.
const Good = 1

// A group is documented by one comment.
const (
	InGroup = 1
	AlsoInGroup
)

const (
	Bare = 1
	Trailing = 2 // Trailing is documented.
)

type Naked struct{}

// A Struct is documented, and so is its field Told.
type Struct struct {
	Told int
	Silent int
	Line int // Line is documented.
	// Above is documented.
	Above int
	// Pair and Apart are documented together.
	Pair int
	Apart int
	hidden int
	Embedded
}

// Embedded is documented.
type Embedded interface {
	// Said is documented.
	Said()
	Unsaid()
}

func Mute() {}

func (Struct) Method() {}

func (*hidden) Method() {}

type hidden struct{ Field int }
`,
		"oid/oid_test.go":             "package oid\n\nfunc Helper() {}\n",
		"csr/csr.go":                  "package csr\n",
		"examples/quickstart/main.go": "// Quickstart has no users.\npackage main\n\nfunc Exported() {}\n",
	})
	exactly(t, documentedProblems(loadTree(t, root)),
		"csr: no package comment",
		"oid/oid.go:14: Bare", "oid/oid.go:18: Naked", "oid/oid.go:23: Struct.Silent",
		"oid/oid.go:38: Embedded.Unsaid", "oid/oid.go:41: Mute", "oid/oid.go:43: Struct.Method",
	)
}

func documentedProblems(tr *tree) []string {
	var problems []string
	for _, p := range tr.packages {
		described := false
		for _, f := range p.files {
			if f.test {
				continue
			}
			described = described || f.syntax.Doc != nil
			if !p.command() {
				c := docCheck{tr: tr, path: f.path}
				c.file(f.syntax)
				problems = append(problems, c.problems...)
			}
		}
		if !described {
			problems = append(problems, p.dir+": no package comment")
		}
	}
	return problems
}

// A docCheck collects the undocumented exported names of one file.
type docCheck struct {
	tr       *tree
	path     string
	problems []string
}

func (c *docCheck) want(n ast.Node, name string, docs ...*ast.CommentGroup) {
	for _, d := range docs {
		if d != nil && strings.TrimSpace(d.Text()) != "" {
			return
		}
	}
	c.problems = append(c.problems, fmt.Sprintf("%s:%d: %s is exported and not documented", c.path, c.tr.line(n), name))
}

func (c *docCheck) file(f *ast.File) {
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := receiverName(d.Recv.List[0].Type)
				if !ast.IsExported(receiver) {
					continue
				}
				name = receiver + "." + name
			}
			if d.Name.IsExported() {
				c.want(d, name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				c.spec(d, spec)
			}
		}
	}
}

func (c *docCheck) spec(d *ast.GenDecl, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				c.want(name, name.Name, s.Doc, s.Comment, d.Doc)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		c.want(s, s.Name.Name, s.Doc, d.Doc)
		doc := s.Doc.Text() + d.Doc.Text()
		switch def := s.Type.(type) {
		case *ast.StructType:
			c.members(s.Name.Name, doc, def.Fields)
		case *ast.InterfaceType:
			c.members(s.Name.Name, doc, def.Methods)
		}
	}
}

// members wants each field and method to have a comment of its own or to be spoken
// of, by name, in the comment of its type or of another member: one sentence often
// explains two fields.
func (c *docCheck) members(typeName, told string, list *ast.FieldList) {
	for _, field := range list.List {
		told += field.Doc.Text()
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			if name.IsExported() && !mentions(told, name.Name) {
				c.want(name, typeName+"."+name.Name, field.Doc, field.Comment)
			}
		}
	}
}

func mentions(doc, name string) bool {
	return regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(name) + `\b`).MatchString(doc)
}

func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
