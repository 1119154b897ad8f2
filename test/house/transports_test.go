package house_test

import (
	"go/ast"
	"go/types"
	"slices"
	"testing"
)

// TestTransports: each HTTP transport and server that is made here bounds the headers that it reads
// (net/http takes 10 MiB of a response, and 1 MiB of a request), and each client has such a transport.
// A client of jws.RemoteConfig gets one there.
func TestTransports(t *testing.T) {
	problems, made := transportProblems(t, ".")
	none(t, problems)
	if made < 4 {
		t.Errorf("%d transports and servers: the search has lost some", made)
	}
}

func TestTransportsBite(t *testing.T) {
	root := fixture(t, map[string]string{"a/a.go": `package a

var _ = http.Client{Transport: &http.Transport{MaxResponseHeaderBytes: 1}}
var _ = &http.Server{MaxHeaderBytes: 1}
var _ = jws.RemoteConfig{Client: new(http.Client)}
var _ = jws.RemoteConfig{Client: &http.Client{Timeout: 1}}
var _ = http.Client{Timeout: 1}
var _ = http.Client{Transport: &http.Transport{}}
var _ = new(http.Client)
var _ = new(http.Transport)
var _ = http.DefaultClient
var _ = http.Server{}
var _, _ = http.Get("")
var _ = jws.Other{Client: new(http.Client)}
`, "a/a_test.go": "package a\n\nvar _ = new(http.Client)\n"})
	problems, made := transportProblems(t, root)
	exactly(t, problems, "a/a.go:7: http.Client", "a/a.go:8: http.Transport", "a/a.go:9: new(http.Client)", "a/a.go:10: new(http.Transport)",
		"a/a.go:11: http.DefaultClient", "a/a.go:12: http.Server", "a/a.go:13: http.Get", "a/a.go:14: new(http.Client)")
	if made != 2 {
		t.Errorf("%d are bounded", made)
	}
}

// unbounded are the names of net/http behind which there is a transport without a bound of ours.
var unbounded = []string{"http.DefaultClient", "http.Get", "http.Head", "http.Post", "http.PostForm", "http.ListenAndServe", "http.ListenAndServeTLS", "http.Serve", "http.ServeTLS"}

// bounds are the fields that bound headers, or lead to what does.
var bounds = map[string]string{"http.Transport": "MaxResponseHeaderBytes", "http.Server": "MaxHeaderBytes", "http.Client": "Transport"}

// transportProblems returns the places without a bound, and how many transports and servers have one.
func transportProblems(t *testing.T, root string) (problems []string, made int) {
	t.Helper()
	for _, file := range shippedFiles(t, root) {
		bounded := map[ast.Expr]bool{} // by package jws
		ast.Inspect(file.File, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.CompositeLit:
				of := ""
				if n.Type != nil {
					of = types.ExprString(n.Type)
				}
				if of == "jws.RemoteConfig" {
					bounded[field(n, "Client")] = true
				}
				if bounds[of] != "" && field(n, bounds[of]) != nil {
					if of != "http.Client" { // whose transport counts
						made++
					}
				} else if bounds[of] != "" && !bounded[n] {
					what = of + " without " + bounds[of]
				}
			case *ast.UnaryExpr:
				bounded[n.X] = bounded[n.X] || bounded[n]
			case *ast.CallExpr:
				if text := types.ExprString(n); !bounded[n] && (text == "new(http.Client)" || text == "new(http.Transport)" || text == "new(http.Server)") {
					what = text
				}
			case *ast.SelectorExpr:
				if text := types.ExprString(n); slices.Contains(unbounded, text) && !bounded[n] {
					what = text
				}
			}
			if what != "" {
				problems = append(problems, file.problem(n, what+": no bound on headers"))
			}
			return true
		})
	}
	return problems, made
}

// field returns the value of a literal's field, or nil.
func field(literal *ast.CompositeLit, name string) ast.Expr {
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok && types.ExprString(pair.Key) == name {
			return pair.Value
		}
	}
	return nil
}
