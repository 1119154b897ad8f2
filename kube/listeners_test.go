package kube

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/kube/internal/bootstrap"
	"github.com/nodeattest/nodeattest/kube/internal/httpserver"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// listening finds, in a file, what listens or serves without the limits of package httpserver, and
// the calls of that package's Listen.
func listening(t *testing.T, path string, source any) (unbound []string, bound int) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{} // of packages, in this file
	for _, i := range f.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		name := imported[strings.LastIndex(imported, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = strings.TrimPrefix(imported, "sigs.k8s.io/controller-runtime/pkg/")
	}
	of := func(n ast.Node) string { // such as "net/http.Server"
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return ""
		}
		x, ok := s.X.(*ast.Ident)
		if !ok || names[x.Name] == "" {
			return ""
		}
		return names[x.Name] + "." + s.Sel.Name
	}
	found := func(n ast.Node, what string) {
		unbound = append(unbound, fmt.Sprintf("%s:%d %s", filepath.ToSlash(path), files.Position(n.Pos()).Line, what))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr: // a pointer to a server is made elsewhere
			return of(n.X) != "net/http.Server"
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "Listen" || s.Sel.Name == "ListenLocal") && of(s) == "" {
				bound++
			}
		case *ast.CompositeLit:
			switch what := of(n.Type); what {
			case "manager.Options", "sigs.k8s.io/controller-runtime.Options":
				if !nowhere(n) {
					found(n, what)
				}
			case "manager.Server":
				if field(n, "Listener") == nil {
					found(n, what)
				}
			}
		case *ast.SelectorExpr:
			what := of(n)
			package_, name := what[:max(0, strings.LastIndex(what, "."))], what[strings.LastIndex(what, ".")+1:]
			if what != "" && (strings.HasPrefix(name, "Listen") && name != "Listener" && (package_ == "net" || package_ == "net/http" || package_ == "crypto/tls") ||
				package_ == "net" && strings.HasPrefix(name, "FileListener") || package_ == "net/http" && (name == "Server" || strings.HasPrefix(name, "Serve") && name != "ServeMux" && !strings.HasPrefix(name, "ServeContent")) ||
				strings.HasSuffix(package_, "unix") && (name == "Listen" || name == "Accept") || package_ == "webhook" && strings.HasPrefix(name, "New")) {
				found(n, what)
			}
		}
		return true
	})
	return unbound, bound
}

// field is the value of a field in a literal, or nil.
func field(l *ast.CompositeLit, name string) ast.Expr {
	for _, e := range l.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok && fmt.Sprint(pair.Key) == name {
			return pair.Value
		}
	}
	return nil
}

// nowhere says whether a manager with these options has no server. Without a word it serves metrics
// at every address of the machine.
func nowhere(options *ast.CompositeLit) bool {
	is := func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.BasicLit:
			return e.Value == `"0"`
		case *ast.Ident:
			return e.Name == "nowhere"
		}
		return false
	}
	for _, name := range []string{"HealthProbeBindAddress", "PprofBindAddress"} {
		if e := field(options, name); e != nil && !is(e) {
			return false
		}
	}
	metrics, ok := field(options, "Metrics").(*ast.CompositeLit)
	return ok && is(field(metrics, "BindAddress")) && field(options, "WebhookServer") == nil
}

// TestListeners: nothing in this module listens but by package httpserver, and the page has each of
// its listeners, with its limits.
func TestListeners(t *testing.T) {
	bound, files := map[string]int{}, 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if _, missing := os.Stat(filepath.Join(path, "go.mod")); path != "." && missing == nil {
			return fs.SkipDir // another module
		}
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		unbound, calls := listening(t, path, nil)
		if dir := filepath.ToSlash(filepath.Dir(path)); dir == "internal/httpserver" {
			return nil
		}
		for _, what := range unbound {
			t.Errorf("%s: want a listener and a server of package httpserver", what)
		}
		if calls != 0 {
			bound[filepath.ToSlash(path)] = calls
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The one of servers.go is called for probes and for metrics, of each of four programs.
	if want := map[string]int{"program/controlplane/servers.go": 1, "cmd/ak-ca/server.go": 1, "program/node/metrics.go": 1}; !maps.Equal(bound, want) || files < 100 {
		t.Errorf("%v in %d files, want %v", bound, files, want)
	}
	s, err := settings.Parse([]byte("apiVersion: config.nodeattest.github.io/v1alpha1\nkind: NodeAttestation\ncluster: {ids: [c]}\n" +
		"inventory: {file: f}\nmembership: {mode: Inventory, road: ek}\ntpm: {ekIssuers: [{rootsFile: f, profile: tcg}]}\ninsecureSigner: {certificateFile: f, keyFile: f}\n"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := bootstrap.Parse([]byte("apiVersion: config.nodeattest.github.io/v1alpha1\nkind: BootstrapController\ncontrollers: [signer]\n"))
	if err != nil {
		t.Fatal(err)
	}
	row := func(program, setting, address string, l httpserver.Limits) string {
		return fmt.Sprintf("| %s | `%s` | `%s` | %d | %d | %d KiB | %d KiB | %s |", program, setting, address, l.Connections, l.PerAddress, httpserver.Headers>>10, l.Body>>10, l.Patience)
	}
	want := []string{
		row("node-attestation-controller", "controller.healthAddress", s.Controller.HealthAddress, httpserver.Probes),
		row("node-attestation-controller", "controller.metricsAddress", s.Controller.MetricsAddress, httpserver.Metrics),
		row("node-attestation-signer", "signer.healthAddress", s.Signer.HealthAddress, httpserver.Probes),
		row("node-attestation-signer", "signer.metricsAddress", s.Signer.MetricsAddress, httpserver.Metrics),
		row("node-attestation-signer --insecure", "insecureSigner.healthAddress", s.InsecureSigner.HealthAddress, httpserver.Probes),
		row("node-attestation-signer --insecure", "insecureSigner.metricsAddress", s.InsecureSigner.MetricsAddress, httpserver.Metrics),
		row("bootstrap-controller", "healthAddress", b.HealthAddress, httpserver.Probes),
		row("bootstrap-controller", "metricsAddress", b.MetricsAddress, httpserver.Metrics),
		row("ak-ca", "--listen", "none", httpserver.Enrolments),
		row("kubelet-authenticator daemon", "metrics", "none", httpserver.Local),
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Who listens\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 9 && strings.Contains(line, "KiB") {
			if strings.TrimSuffix(cells[8], " |") == "" {
				t.Errorf("no client: %s", line)
			}
			rows = append(rows, strings.Join(cells[:8], " | ")+" |")
		}
	}
	if !slices.Equal(rows, want) {
		t.Errorf("the page has\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

// TestListening: each way to listen that has no bounds is found.
func TestListening(t *testing.T) {
	for statement, want := range map[string]bool{
		`net.Listen("tcp", ":80")`: true, `(&net.ListenConfig{}).Listen(nil, "tcp", ":80")`: true, `new(net.ListenConfig)`: true, `net.ListenTCP("tcp", nil)`: true,
		`net.ListenUnix("unix", nil)`: true, `net.ListenPacket("udp", ":80")`: true, `net.FileListener(nil)`: true, `tls.Listen("tcp", ":80", nil)`: true,
		`http.ListenAndServe(":80", nil)`: true, `http.ListenAndServeTLS(":80", "", "", nil)`: true, `http.Serve(nil, nil)`: true, `http.ServeTLS(nil, nil, "", "")`: true,
		`_ = &http.Server{}`: true, `new(http.Server)`: true, `var s http.Server`: true, `_ = unix.Listen`: true, `webhook.NewServer(webhook.Options{})`: true,
		`_ = manager.Options{}`: true, `_ = manager.Options{Metrics: server.Options{}}`: true, `_ = manager.Options{Metrics: server.Options{BindAddress: ":8080"}}`: true,
		`_ = manager.Options{Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: ":8081"}`: true, `_ = ctrl.Options{}`: true,
		`_ = manager.Options{Metrics: server.Options{BindAddress: "0"}, PprofBindAddress: a}`: true, `_ = manager.Server{}`: true,
		`_ = manager.Options{Metrics: server.Options{BindAddress: "0"}, WebhookServer: w}`: true,

		`_ = manager.Options{Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: nowhere}`: false, `var s *http.Server`: false,
		`_ = manager.Server{Listener: l}`: false, `http.NewServeMux()`: false, `var m http.ServeMux`: false, `var l net.Listener`: false, `l.Listen(nil, ":80")`: false, `net.Dial("tcp", ":80")`: false,
	} {
		got, bound := listening(t, "f.go", `package p
import ("crypto/tls"; "net"; "net/http"; "golang.org/x/sys/unix"; ctrl "sigs.k8s.io/controller-runtime"; "sigs.k8s.io/controller-runtime/pkg/manager";
"sigs.k8s.io/controller-runtime/pkg/metrics/server"; "sigs.k8s.io/controller-runtime/pkg/webhook")
func f() { `+statement+` }`)
		if (len(got) != 0) != want || (bound == 1) != strings.Contains(statement, "l.Listen") && !strings.Contains(statement, "ListenConfig") {
			t.Errorf("%s: found %q and %d, want %t", statement, got, bound, want)
		}
	}
}
