package controlplane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// rack is a platform whose documents are a signature over a slot's number and a value, and
// the slot's own source of them.
type rack struct {
	slot byte
	key  ed25519.PrivateKey
	pub  ed25519.PublicKey
}

const documentSize = 1 + 32 + ed25519.SignatureSize

func (r rack) Read(doc []byte) (*document.Claims, error) {
	if len(doc) != documentSize {
		return nil, &attest.Error{Check: "rack-document", Got: "another size"}
	}
	return &document.Claims{Machine: attest.Identity("rack:" + hex.EncodeToString(doc[:1])), Value: doc[1:33]}, nil
}

func (r rack) Verify(ctx context.Context, doc []byte, q *attest.Inquiry) (*document.Claims, error) {
	claims, err := r.Read(doc)
	if err == nil {
		err = q.Budget.Signature(ctx)
	}
	if err == nil && !ed25519.Verify(r.pub, doc[:33], doc[33:]) {
		err = &attest.Error{Check: "rack-document", Got: "another signature"}
	}
	return claims, err
}

func (r rack) Machine(context.Context) (attest.Identity, error) {
	return attest.Identity("rack:" + hex.EncodeToString([]byte{r.slot})), nil
}

func (r rack) Document(_ context.Context, value []byte) ([]byte, error) {
	doc := append([]byte{r.slot}, value...)
	return append(doc, ed25519.Sign(r.key, doc)...), nil
}

// rackKind is the plugin of another main function.
func rackKind() Plugin {
	return Plugin{Name: "rack", Identities: []attest.Grammar{{Kind: "rack"}}, Open: func(decode func(into any) error) (attest.Kind, error) {
		var section struct {
			PublicKey string `json:"publicKey"`
		}
		if err := decode(&section); err != nil {
			return nil, err
		}
		pub, err := hex.DecodeString(section.PublicKey)
		if err != nil || len(pub) != ed25519.PublicKeySize {
			return nil, errors.New("publicKey is not a key")
		}
		return document.NewKind(document.KindConfig{Provider: "rack", Identities: []attest.Grammar{{Kind: "rack"}}, ValueSize: 32, OwnMachines: true, Platform: rack{pub: pub}})
	}}
}

// configuration is that of a program which knows racks; @ is the folder, KEY the rack's key.
const configuration = `apiVersion: config.nodeattest.github.io/v1alpha1
kind: NodeAttestation
cluster: {ids: [c]}
signers: {names: [kubernetes.io/kube-apiserver-client-kubelet, cluster.x-k8s.io/kube-apiserver-client-kubelet-rack]}
rack: {publicKey: KEY}
inventory: {file: @/inventory.yaml}
membership: {mode: FirstUse, kind: rack}
`

const inventory = `machines:
- {nodeName: slot-1, identity: 'rack:01'}
- {nodeName: slot-2}
`

// TestKindOfOthers runs the program with a made-up kind, whose machines join by the
// inventory and by first use.
func TestKindOfOthers(t *testing.T) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, strings.ReplaceAll(configuration, "KEY", hex.EncodeToString(pub)))
	var stderr bytes.Buffer
	status := run("test", []string{"--config", path}, &stderr, []Plugin{rackKind()}, func(_ context.Context, _ flags, s *settings.Settings) error {
		for nodeName, slot := range map[string]byte{"slot-1": 1, "slot-2": 7} {
			if err := join(t, s, nodeName, rack{slot: slot, key: key}); err != nil {
				t.Errorf("%s: %v", nodeName, err)
			}
		}
		if err := join(t, s, "slot-1", rack{slot: 2, key: key}); !errors.Is(err, attest.CheckMembership) {
			t.Errorf("another slot as slot-1: %v", err)
		}
		_, stranger, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := join(t, s, "slot-1", rack{slot: 1, key: stranger}); !errors.Is(err, attest.Check("rack-document")) {
			t.Errorf("another rack's signature: %v", err)
		}
		return nil
	})
	if status != 0 {
		t.Errorf("status %d:\n%s", status, &stderr)
	}
}

// join attests as a node, with a bootstrap token, to a control plane in memory.
func join(t *testing.T, s *settings.Settings, nodeName string, machine rack) error {
	t.Helper()
	machines := testkit.Must(s.OpenInventory())
	admits, err := s.NewAuthorizer(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		r, err := membership.NewMemoryRegistry(scope, membership.RegistryOptions{})
		return r, nil, err
	}, func(context.Context, string) (bool, error) { return false, nil })
	if err != nil {
		t.Fatal(err)
	}
	ring := testkit.Must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now().Add(-time.Hour))))
	verifier := testkit.Must(s.Verifier(ring, machines.Machine, admits))
	prover := testkit.Must(document.NewProver("rack", 1, machine))
	attester := testkit.Must(attest.NewAttester(prover))
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := testkit.Must(csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{}))
	subject := attest.Subject{Request: request, SignerName: csr.SignerKubeAPIServerClientKubelet, ClusterID: "c", ExpirationSeconds: 3600}
	hello := testkit.Must(attester.Hello(t.Context(), subject))
	challenge, err := verifier.Challenge(t.Context(), filed(hello))
	if err != nil {
		return err
	}
	answer, err := attester.Answer(t.Context(), challenge, key, subject)
	if err != nil {
		t.Fatal(err)
	}
	_, err = verifier.Verify(t.Context(), filed(answer))
	return err
}

func filed(spec *csr.Spec) *csr.Request {
	r := &csr.Request{Metadata: csr.Metadata{Name: "r", UID: rand.Text(), CreationTimestamp: time.Now().Truncate(time.Second)}, Spec: *spec}
	r.User.Username, r.User.Groups = csr.BootstrapUserPrefix+"abcdef", []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}
	return r
}

func write(t *testing.T, text string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"config.yaml": strings.ReplaceAll(text, "@", dir), "inventory.yaml": inventory} {
		testkit.MustDo(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "config.yaml")
}

// TestKindRefused changes one thing after the other: a fault ends the program at its start.
func TestKindRefused(t *testing.T) {
	good := strings.ReplaceAll(configuration, "KEY", strings.Repeat("ab", 32))
	tpms := rackKind()
	tpms.Open = func(func(into any) error) (attest.Kind, error) {
		return document.NewKind(document.KindConfig{Provider: "shelf", Identities: []attest.Grammar{{Kind: "rack"}}, ValueSize: 32, Platform: rack{}})
	}
	others := rackKind()
	others.Open = func(func(into any) error) (attest.Kind, error) {
		return document.NewKind(document.KindConfig{Provider: "rack", Identities: []attest.Grammar{{Kind: "rack"}, {Kind: "row"}}, ValueSize: 32, Platform: rack{}})
	}
	second := Plugin{Name: "rack", Identities: rackKind().Identities, Versions: []int{2}, Open: func(func(any) error) (attest.Kind, error) {
		return document.NewKind(document.KindConfig{Provider: "rack", Versions: []int{2}, Identities: rackKind().Identities, ValueSize: 32, Platform: rack{}})
	}}
	named := func(name string) Plugin {
		k := rackKind()
		k.Name = name
		return k
	}
	for name, row := range map[string]struct {
		old, with string
		kinds     []Plugin
		want      string // "": it is served
	}{
		"as it is":                      {"", "", []Plugin{rackKind()}, ""},
		"a program without the kind":    {"", "", nil, "rack"},
		"an unknown section":            {"rack: {", "shelf: {}\nrack: {", []Plugin{rackKind()}, "shelf"},
		"an unknown field":              {"publicKey", "publickey", []Plugin{rackKind()}, "publickey"},
		"a section of nothing":          {"rack: {publicKey: " + strings.Repeat("ab", 32) + "}", "rack:", []Plugin{rackKind()}, "an object"},
		"a bad key":                     {"abab", "ab", []Plugin{rackKind()}, "publicKey is not a key"},
		"no section":                    {"rack: {publicKey: " + strings.Repeat("ab", 32) + "}", "", []Plugin{rackKind()}, "one kind of evidence"},
		"twice":                         {"", "", []Plugin{rackKind(), rackKind()}, "no other kind"},
		"the name of a section":         {"", "", []Plugin{named("cluster")}, "no other kind or section"},
		"the name of one in the box":    {"", "", []Plugin{named("tpm")}, "no other kind"},
		"a bad name":                    {"", "", []Plugin{named("Rack")}, "a-z"},
		"nothing to open":               {"", "", []Plugin{{Name: "rack", Identities: []attest.Grammar{{Kind: "rack"}}}}, "Open of rack"},
		"no identities":                 {"", "", []Plugin{{Name: "rack", Open: rackKind().Open}}, "Identities of rack"},
		"a kind of another name":        {"", "", []Plugin{tpms}, "shelf"},
		"identities that are not named": {"", "", []Plugin{others}, "without row"},
		"a later version":               {"", "", []Plugin{second}, ""},
		"a version that is not named":   {"", "", []Plugin{{Name: "rack", Identities: second.Identities, Open: second.Open}}, "Plugin.Versions"},
		"another kind's identity":       {"mode: FirstUse", "mode: Inventory", []Plugin{{Name: "rack", Identities: []attest.Grammar{{Kind: "slot"}}, Open: rackKind().Open}}, "rack:01"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, strings.Replace(good, row.old, row.with, 1))
			var stderr bytes.Buffer
			status := run("test", []string{"--config", path}, &stderr, row.kinds, func(_ context.Context, _ flags, s *settings.Settings) error {
				if _, err := s.OpenInventory(); err != nil {
					return err
				}
				_, err := s.Kinds()
				return err
			})
			if (status == 0) != (row.want == "") || !strings.Contains(stderr.String(), row.want) {
				t.Errorf("status %d, want an error with %q:\n%s", status, row.want, &stderr)
			}
		})
	}
}

// TestCommandLine has the three programs end before they do anything.
func TestCommandLine(t *testing.T) {
	for name, program := range map[string]func([]string, *bytes.Buffer) int{
		"controller": func(args []string, stderr *bytes.Buffer) int { return Controller(args, stderr) },
		"signer":     func(args []string, stderr *bytes.Buffer) int { return Signer(args, stderr) },
		"bootstrap":  func(args []string, stderr *bytes.Buffer) int { return Bootstrap(args, stderr) },
	} {
		for want, args := range map[int][]string{0: {"--version"}, 1: {"--config", "/nonexistent"}, 2: {"--unknown"}} {
			if got := program(args, new(bytes.Buffer)); got != want {
				t.Errorf("%s %q: status %d, want %d", name, args, got, want)
			}
		}
	}
}
