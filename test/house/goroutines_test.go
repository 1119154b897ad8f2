package house_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A panic in a goroutine ends the process, whatever its caller recovers from. So each goroutine that
// the modules start, and each function of theirs that a library runs in one, goes through package
// recovered, or a comment on its line says which code it runs that is not of others:
//
//	go f() //goroutine: reads a file of ours
//
// Tests, their helpers' programs and the tools of this repository are left out.
const recoveredPath = modulePath + "/recovered"

// TestGoroutines finds each goroutine in the source.
func TestGoroutines(t *testing.T) {
	problems, through := goroutineProblems(t, ".")
	none(t, problems)
	if through < 6 {
		t.Errorf("%d goroutines go through %s: the search has lost some", through, recoveredPath)
	}
}

func TestGoroutinesBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"recovered/recovered.go": "package recovered\n\nfunc Go(f func() error) <-chan error {\n\tgo f()\n\treturn nil\n}\n",
		"a/a.go": `package a

import (
	"context"
	"net/http"
	"time"

	"` + recoveredPath + `"
)

type runs struct{}

func (runs) Start(ctx context.Context) error { return nil }

func (runs) Started() error { return nil }

func (runs) Start2(ctx context.Context) error { return nil }

func (*runs) Start(ctx context.Context, more int) error { return nil } //goroutine: reads a file of ours

func good(f func() error, dial func(context.Context, string, string) (net.Conn, error)) {
	recovered.Go(f)
	go f() //goroutine: reads a file of ours
	go func() { //goroutine: reads a file of ours
		f()
	}()
	_ = http.Transport{DialContext: recovered.Dial(dial)}
	transport.Name, transport.DialContext = f, nil
}

func bad(f func() error, dial func(context.Context, string, string) (net.Conn, error)) {
	go f()
	go f() //goroutine: no
	f() //goroutine: reads a file of ours
	context.AfterFunc(nil, f)
	time.AfterFunc(0, f)
	var group errgroup.Group
	group.Go(f)
	informer.AddEventHandler(f)
	wait.Until(f, 0, nil)
	end.Until()
	_ = http.Transport{DialContext: dial}
	transport.DialContext = dial
}
`,
		"b/b.go":      "package b\n\nvar recovered group\n\nfunc f() { recovered.Go(nil) }\n",
		"b/b_test.go": "package b\n\nfunc f() { go f() }\n",
		"test/c/c.go": "package c\n\nfunc f() { go f() }\n",
	})
	problems, _ := goroutineProblems(t, root)
	exactly(t, problems, "a/a.go:13: Start", "a/a.go:32: go", "a/a.go:33: go", "a/a.go:34: a comment", "a/a.go:35: context.AfterFunc", "a/a.go:36: time.AfterFunc",
		"a/a.go:38: group.Go", "a/a.go:39: informer.AddEventHandler", "a/a.go:40: wait.Until", "a/a.go:42: DialContext", "a/a.go:43: DialContext", "b/b.go:5: recovered.Go")
}

// startsGoroutine are the functions and methods of libraries that run in a goroutine what they are
// given, or may: of sync.WaitGroup, errgroup, singleflight, time, context, client-go's informers and
// package wait.
var startsGoroutine = regexp.MustCompile(`\.(Go|TryGo|AfterFunc|DoChan|AddEventHandler\w*)$|^wait\.\w*(Until|Forever)\w*$`)

// calledByTransport are the fields of http.Transport and tls.Config that are called in goroutines
// of net/http while it connects.
var calledByTransport = []string{"Dial", "DialContext", "DialTLS", "DialTLSContext", "GetClientCertificate", "VerifyPeerCertificate", "VerifyConnection", "GetProxyConnectHeader", "OnProxyConnectResponse"}

// goroutineProblems returns the goroutines that neither go through package recovered nor have a
// reason, and how many go through it.
func goroutineProblems(t *testing.T, root string) (problems []string, through int) {
	t.Helper()
	files, positions := parseAll(t, root)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "tools/") || path.Dir(name) == "recovered" {
			continue
		}
		found, recovering := goroutinesOf(files[name])
		through += recovering
		at := map[int]string{}
		for position, what := range found {
			at[positions.Position(position).Line] = what
		}
		for i, line := range strings.Split(readFile(t, filepath.Join(root, name)), "\n") {
			what, starts := at[i+1]
			_, reason, marked := strings.Cut(line, "//goroutine: ")
			switch {
			case starts && !marked:
				problems = append(problems, fmt.Sprintf("%s:%d: %s runs code in a goroutine, past recovered and without a comment //goroutine", name, i+1, what))
			case starts && len(strings.Fields(reason)) < 4:
				problems = append(problems, fmt.Sprintf("%s:%d: %s has a comment //goroutine that gives no reason", name, i+1, what))
			case marked && !starts:
				problems = append(problems, fmt.Sprintf("%s:%d: a comment //goroutine without a goroutine", name, i+1))
			}
		}
	}
	return problems, through
}

// goroutinesOf returns what a file starts, by position, and how much goes through package recovered.
func goroutinesOf(f *ast.File) (found map[token.Pos]string, through int) {
	found = map[token.Pos]string{}
	imported := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+recoveredPath+`"` })
	recovers := func(e ast.Expr) bool {
		call, ok := e.(*ast.CallExpr)
		if !ok {
			return false
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		return ok && imported && types.ExprString(selector.X) == "recovered"
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found[n.Pos()] = "go"
		case *ast.FuncDecl:
			if isRunnable(n) {
				found[n.Pos()] = "Start"
			}
		case *ast.CallExpr:
			selector, ok := n.Fun.(*ast.SelectorExpr)
			switch {
			case recovers(n):
				through++
			case ok && startsGoroutine.MatchString(types.ExprString(selector)):
				found[n.Pos()] = types.ExprString(selector)
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(calledByTransport, key.Name) && !recovers(n.Value) {
				found[n.Pos()] = key.Name
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				selector, ok := left.(*ast.SelectorExpr)
				value := n.Rhs[min(i, len(n.Rhs)-1)]
				if ok && slices.Contains(calledByTransport, selector.Sel.Name) && !recovers(value) && types.ExprString(value) != "nil" {
					found[n.Pos()] = selector.Sel.Name
				}
			}
		}
		return true
	})
	return found, through
}

// isRunnable reports whether a method is that of a manager.Runnable of controller-runtime, or of a
// source of requests: a manager runs both in goroutines of its own.
func isRunnable(f *ast.FuncDecl) bool {
	parameters := f.Type.Params.List
	return f.Recv != nil && f.Name.Name == "Start" && len(parameters) > 0 && types.ExprString(parameters[0].Type) == "context.Context"
}
