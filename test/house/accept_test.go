package house_test

import (
	"encoding/json"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// acceptance calls every exported function and method of a module that can accept.
type acceptance struct {
	imports map[string]string // the names under which packages are imported, by path
	types   map[types.Type]bool
	calls   []string // of Go: {"csr.Parse", csr.Parse},
	stubs   []string // declarations
	made    []string // and values of them
}

// forTests are packages that no program imports.
var forTests = []string{"attest/attesttest", "bootstraptoken/bootstraptokentest", "claims/claimstest", "externalsigner/extsignertest", "jws/jwstest", "tpmsim", "cloud/cloudtest"}

// waiting are names of methods that do nothing else until their context ends, and are called with
// one that has.
var waiting = []string{"Lock", "Start"}

// uncalled are names of functions that accept what they are given, and hold what the whole machine has once,
// such as the name of a socket.
var uncalled = []string{"ListenInsecureAbstract"}

// load reads the public packages of the module at root, as the compiler wrote them.
func (a *acceptance) load(t *testing.T, root string) (list []*types.Package) {
	t.Helper()
	out, err := goCommand(root, "", "list", "-export", "-deps", "-f", "{{.ImportPath}};{{.Export}};{{.DepOnly}};{{.Name}}", "./...")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	exports, own := map[string]string{}, []string{}
	for line := range strings.Lines(out) {
		field := strings.Split(strings.TrimSpace(line), ";")
		if len(field) != 4 {
			continue // "go: downloading"
		}
		exports[field[0]] = field[1]
		p := goPackage{path: ownPath(field[0]), name: field[3]}
		if field[2] == "false" && p.public() && !slices.Contains(forTests, p.path) && !strings.HasPrefix(p.path, "examples/") {
			own = append(own, field[0])
		}
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, path := range own {
		p, err := compiled.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// accepts reports whether the last result says yes or no.
func accepts(s *types.Signature) bool {
	n := s.Results().Len()
	if n == 0 {
		return false
	}
	last := s.Results().At(n - 1).Type()
	return types.Identical(last, types.Universe.Lookup("error").Type()) || types.Identical(last, types.Typ[types.Bool])
}

// find adds the functions and methods of a package.
func (a *acceptance) find(p *types.Package) {
	for _, name := range p.Scope().Names() {
		switch o := p.Scope().Lookup(name).(type) {
		case *types.Func:
			if s := o.Signature(); o.Exported() && accepts(s) && !slices.Contains(uncalled, name) {
				a.add(o, "")
			}
		case *types.TypeName:
			named, ok := o.Type().(*types.Named)
			if !ok || !o.Exported() || o.IsAlias() || types.IsInterface(named) {
				continue
			}
			for m := range named.Methods() {
				if m.Exported() && accepts(m.Signature()) {
					a.add(m, name)
				}
			}
		}
	}
}

// add adds one function, or a method of a type; of a generic one, that for strings.
func (a *acceptance) add(f *types.Func, recv string) {
	s := f.Signature()
	name, of := a.name(f.Pkg()), ""
	if s.RecvTypeParams().Len()+s.TypeParams().Len() > 0 {
		of = "[string]"
	}
	expression := name + "." + f.Name() + of
	if recv != "" {
		expression = name + "." + recv + of
		if _, pointer := s.Recv().Type().(*types.Pointer); pointer {
			expression = "(*" + expression + ")"
		}
		expression += "." + f.Name()
	}
	a.calls = append(a.calls, fmt.Sprintf("\t\t{%q, %s, %t},\n", strings.ReplaceAll(expression, of, ""), expression, slices.Contains(waiting, f.Name())))
	a.follow(s.Params())
}

// name is the name of a package in the generated file.
func (a *acceptance) name(p *types.Package) string {
	if name, ok := a.imports[p.Path()]; ok {
		return name
	}
	name := p.Name()
	for n := 2; slices.Contains(slices.Collect(maps.Values(a.imports)), name); n++ {
		name = fmt.Sprint(p.Name(), n)
	}
	a.imports[p.Path()] = name
	return name
}

// follow makes a stub for each interface that a type has in it.
func (a *acceptance) follow(t types.Type) {
	if a.types[t] {
		return
	}
	a.types[t] = true
	switch t := t.(type) {
	case *types.Tuple:
		for v := range t.Variables() {
			a.follow(v.Type())
		}
	case *types.Signature:
		a.follow(t.Params())
		a.follow(t.Results())
	case *types.Named:
		if i, ok := t.Underlying().(*types.Interface); ok {
			a.stub(i)
		}
		a.follow(t.Underlying())
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				a.follow(f.Type())
			}
		}
	case interface{ Elem() types.Type }: // a pointer, slice, array, map or channel
		a.follow(t.Elem())
	}
}

// stub writes an implementation of an interface, if there can be one.
func (a *acceptance) stub(i *types.Interface) {
	if i.NumMethods() == 0 || !i.IsMethodSet() {
		return
	}
	for m := range i.Methods() {
		a.follow(m.Signature())
	}
	name := fmt.Sprint("stub", len(a.made))
	var text strings.Builder
	fmt.Fprintf(&text, "type %s struct{}\n", name)
	for m := range i.Methods() {
		if !m.Exported() {
			return
		}
		var params, results, values []string
		for v := range m.Signature().Params().Variables() {
			params = append(params, "_ "+a.text(v.Type()))
		}
		for v := range m.Signature().Results().Variables() {
			results, values = append(results, a.text(v.Type())), append(values, "given["+a.text(v.Type())+"]()")
		}
		fmt.Fprintf(&text, "func (%s) %s(%s) (%s) { return %s }\n", name, m.Name(), strings.Join(params, ", "), strings.Join(results, ", "), strings.Join(values, ", "))
	}
	a.stubs, a.made = append(a.stubs, text.String()), append(a.made, name+"{}")
}

func (a *acceptance) text(t types.Type) string { return types.TypeString(t, a.name) }

// run compiles the calls into the module at root, and calls them in a folder of their own.
func (a *acceptance) run(t *testing.T, root string) (list []outcome) {
	t.Helper()
	var text strings.Builder
	text.WriteString("package house_test\n\nimport (\n")
	for path, name := range a.imports {
		fmt.Fprintf(&text, "\t%s %q\n", name, path)
	}
	fmt.Fprintf(&text, ")\n\nfunc TestCalls(t *testing.T) {\n\terr := writeOutcomes([]callable{\n%s\t}, []any{%s})\n\tif err != nil {\n\t\tt.Fatal(err)\n\t}\n}\n\n%s",
		strings.Join(a.calls, ""), strings.Join(a.made, ", "), strings.Join(a.stubs, "\n"))
	dir := t.TempDir()
	module, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(module, "internal", "calls")
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(folder, "calls_test.go"):  write("calls.go", []byte(text.String())),
		filepath.Join(folder, "caller_test.go"): filepath.Join(mustGetwd(t), "test", "house", "accept_call_test.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "calls.test")
	if out, err := goCommand(root, "", "test", "-c", "-vet=off", "-overlay", write("overlay.json", overlay), "-o", program, "./internal/calls"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("OUTCOMES", filepath.Join(dir, "outcomes.json"))
	cmd := exec.Command(program, "-test.run=^TestCalls$")
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found, err := os.ReadFile(filepath.Join(dir, "outcomes.json"))
	if err == nil {
		err = json.Unmarshal(found, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// excused are functions whose last result is not whether something is good, with the reason. They
// may say true or return no error; they may not panic.
var excused = map[string]string{
	"writes or makes bytes, and decides nothing": `oid.MarshalProviderID oid.OID.ASN1 oid.ProviderIDExtension secret.Value.MarshalText
		csr.Request.MarshalJSON csr.SignerChallenge attest.Result.MarshalJSON (*document.Hello).Marshal
		document.MarshalStatement statement.MarshalEventLog statement.MarshalTCGAttestCertify jws.MarshalJWKS jws.NewDetached
		(*bootstraptoken.Object).RevealYAML (*authenticator.Status).Write goattestation.EncryptedCredential
		bootstraptoken.Token.MarshalText (*claims.Claims).Marshal
		claims.NumericDate.MarshalJSON bootstraptoken.Create attest.RotateKeys`,
	"ends something, and there was nothing": `(*attest.Attester).Close (*document.Prover).Close (*membership.FileRegistry).Close
		(*certstore.Lock).Unlock (*goattestation.Channel).Close (*externalsigner.Listener).Close`,
	"true says that something is missing, or over": `secret.Value.IsZero bootstraptoken.Pin.IsZero bootstraptoken.Token.IsZero claims.NumericDate.IsZero
		(*bootstraptoken.Secret).Expired`,
	"reports a fact or compares, and the caller decides": `(*csr.Request).HasCondition (*attest.Evidence).Is (*membership.Record).Live
		(*membership.Record).HoldsMachine statement.Attributes.Has statement.Attributes.HasAny statement.PCR.Equal statement.SortedPCRs
		claims.Facts.Has (*bootstraptoken.ClusterInfo).Equal oid.OID.Valid oid.ContradictsProviderID refusal.Retry (*apiserver.ReviewError).Unwrap (*certstore.Pair).Usable`,
	"returns what is there, and nothing is an answer": `tpmcert.ChassisIdentity.Identify tpmcert.GCEIdentity.Identify tpmcert.HardwareIdentity.Identify
		tpmcert.OtherNameIdentity.Identify tpmcert.ParseEKChain (*jws.StaticKeySet).Keys bootstraptoken.Sweep claims.FreshObjects.Get
		(*azure.HTTPFetcher).FetchIssuer`,
	"asks what it is given, which here says yes to everything": `attest.AuthorizerFunc.Authorize attest.CheckAuthorizer (*attest.Result).AskAtHello recovered.Call`,
	"constructs a value that admits nothing, or is valid from its arguments": `attest.NewAttester document.NewKind document.NewProver membership.NewStaticList
		membership.ParseStaticList claims.NewMemoryReplayCache claims.FreshObjects.Check goattestation.NewChannel
		azure.NewProver azure.NewSource ec2.NewProver ec2.NewSource gce.NewKind gce.NewProver gce.NewSource nitro.NewProver nitro.NewSource nitro.NewVerifier tpm.TrustEKs
		(*eventlog.BootPolicy).Validate certstore.Open`,
	"has nothing to check, as the kubelet did not start the program": `authenticator.CheckExecInfoVariable`,
}

// acceptProblems calls what can accept in the module at root, and names what accepted nothing, or
// panicked. It reports the number of functions and calls.
func acceptProblems(t *testing.T, root string, excused map[string]bool) (problems []string, functions, calls int) {
	t.Helper()
	a := acceptance{imports: map[string]string{"testing": "testing"}, types: map[types.Type]bool{}}
	for _, p := range a.load(t, root) {
		a.find(p)
	}
	for _, o := range a.run(t, root) {
		calls += o.Calls
		if o.Panics != "" {
			problems = append(problems, o.Name+" panics: "+o.Panics)
		}
		if _, there := excused[o.Name]; there {
			excused[o.Name] = excused[o.Name] || o.Accepts != ""
		} else if o.Accepts != "" {
			problems = append(problems, o.Name+" accepts: "+o.Accepts)
		}
	}
	return problems, len(a.calls), calls
}

// TestNothingFailsOpen: nothing that can accept does, and nothing panics, where it is nil, empty, a
// zero value, made of such values or of unknown ones, and called with such. The functions are found
// by their types: all exported ones of this module, the clouds' and Kubernetes' whose last result
// is an error or a bool.
func TestNothingFailsOpen(t *testing.T) {
	used := map[string]bool{}
	for _, names := range excused {
		for name := range strings.FieldsSeq(names) {
			used[name] = false
		}
	}
	for _, root := range libraries {
		problems, functions, calls := acceptProblems(t, root, used)
		none(t, problems)
		t.Logf("%s: %d functions and methods that can accept, called %d times", root, functions, calls)
	}
	for name, used := range used {
		if !used {
			t.Errorf("%s accepts nothing, or is gone, and needs no excuse", name)
		}
	}
}

func TestNothingFailsOpenBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"a/a.go": `package a

import "errors"

type (
	Kind  interface{ Verify(text string) (*Proof, error) }
	Proof struct{ Of *Proof; Name string }
	List  struct{ of map[string]bool }
	Set[T any] struct{ of []T }
	alias = Proof
)

func Open(p *Proof) error { return nil }
func (l *List) Has(name string) bool { return l.of[name] }
func (l *List) Safe(name string) bool { return l != nil && l.of[name] }
func (s Set[T]) Empty() bool { return len(s.of) == 0 }
func Deep(p *Proof) bool { return p != nil && p.Of != nil && p.Of.Name == "unknown" }
func Believes(k Kind) error {
	if k == nil {
		return errors.New("none")
	}
	_, err := k.Verify("x")
	return err
}
func Trusts(k Kind) bool {
	if k == nil {
		return false
	}
	p, err := k.Verify("x")
	return err == nil && p.Name == "x"
}
func Unasked(p *Proof) {}
func Names() string { return "" }
func (p Proof) Excused() error { return nil }
func hidden() error { return nil }
`,
		"internal/b/b.go": "package b\n\nfunc B() error { return nil }\n",
	})
	excused := map[string]bool{"a.Proof.Excused": false}
	problems, functions, _ := acceptProblems(t, root, excused)
	exactly(t, problems, "a.Open accepts: [nil]", "(*a.List).Has panics: [nil nil]", "a.Set.Empty accepts", "a.Deep accepts: [unknown]",
		"a.Believes accepts: [empty]", "a.Trusts panics: [empty]")
	if functions != 8 || !excused["a.Proof.Excused"] {
		t.Errorf("%d functions, %v", functions, excused)
	}
}
