package house_test

import (
	"go/ast"
	"go/types"
	"strings"
	"testing"
)

// TestLocks: a panic leaves no lock behind. Each Lock and RLock is followed by the deferred Unlock, or
// by statements that call nothing up to that or to the Unlock in the same block.
func TestLocks(t *testing.T) {
	problems, locks := lockProblems(t, ".")
	none(t, problems)
	if locks < 80 {
		t.Errorf("%d locks: the search has lost some", locks)
	}
}

func TestLocksBite(t *testing.T) {
	root := fixture(t, map[string]string{"a/a.go": `package a

func good() {
	mu.Lock()
	defer mu.Unlock()
	f()
	s.mu.RLock()
	if n > 0 {
		n += len(s.all)
	}
	s.mu.RUnlock()
	f()
	for {
		mu.Lock()
		n++
		mu.Unlock()
	}
	mu.Lock()
	n++
	defer mu.Unlock()
}

func bad() {
	mu.Lock()
	f()
	mu.Unlock()
	s.mu.RLock()
	defer s.mu.Unlock()
	mu.Lock()
	panic(n)
	defer mu.Unlock()
	mu.Lock()
	defer func() {
		mu.Lock()
		s.f()
		mu.Unlock()
	}()
	if mu.Lock(); n > 0 {
	}
}
`, "a/a_test.go": "package a\n\nfunc f() { mu.Lock() }\n"})
	problems, locks := lockProblems(t, root)
	exactly(t, problems, "a/a.go:24: mu.Lock", "a/a.go:27: s.mu.RLock", "a/a.go:29: mu.Lock", "a/a.go:32: mu.Lock", "a/a.go:34: mu.Lock", "a/a.go:38: mu.Lock")
	if locks != 10 {
		t.Errorf("%d locks", locks)
	}
}

// lockProblems returns the locks that a panic would leave locked, and how many locks there are.
func lockProblems(t *testing.T, root string) (problems []string, locks int) {
	t.Helper()
	for _, file := range shippedFiles(t, root) {
		released := map[*ast.CallExpr]bool{}
		ast.Inspect(file.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				released = withReleased(released, n.List)
			case *ast.CaseClause:
				released = withReleased(released, n.Body)
			case *ast.CommClause:
				released = withReleased(released, n.Body)
			case *ast.CallExpr:
				if lock := lockOf(n); lock != "" {
					locks++
					if !released[n] {
						problems = append(problems, file.problem(n, types.ExprString(n.Fun)+" without a deferred "+lock))
					}
				}
			}
			return true
		})
	}
	return problems, locks
}

// lockOf returns the call that undoes a lock, or "" for any other call.
func lockOf(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) != 0 || selector.Sel.Name != "Lock" && selector.Sel.Name != "RLock" {
		return ""
	}
	return types.ExprString(selector.X) + "." + strings.Replace(selector.Sel.Name, "Lock", "Unlock", 1)
}

// withReleased adds those locks of a list of statements that are released whatever happens.
func withReleased(released map[*ast.CallExpr]bool, list []ast.Stmt) map[*ast.CallExpr]bool {
	for i, statement := range list {
		expression, ok := statement.(*ast.ExprStmt)
		if !ok {
			continue
		}
		call, ok := expression.X.(*ast.CallExpr)
		if !ok || lockOf(call) == "" {
			continue
		}
		for _, next := range list[i+1:] {
			if e, ok := next.(*ast.ExprStmt); ok && types.ExprString(e.X) == lockOf(call)+"()" {
				released[call] = true
				break
			}
			if d, ok := next.(*ast.DeferStmt); ok {
				released[call] = types.ExprString(d.Call.Fun) == lockOf(call)
				break
			}
			if callsSomething(next) {
				break
			}
		}
	}
	return released
}

// callsSomething reports whether a statement calls a function that is not one of the language, or
// leaves its block.
func callsSomething(statement ast.Stmt) (calls bool) {
	ast.Inspect(statement, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := types.ExprString(n.Fun)
			calls = calls || name == "panic" || types.Universe.Lookup(name) == nil
		case *ast.ReturnStmt, *ast.BranchStmt:
			calls = true
		}
		return !calls
	})
	return calls
}
