package message

import (
	"bytes"
	"encoding/asn1"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

func testBinding() *Binding {
	return &Binding{
		Road:              RoadAK,
		KeyID:             [KeyIDSize]byte{1, 2, 3, 4, 5, 6, 7, 8},
		Nonce:             [NonceSize]byte{9, 10, 11},
		IssuedAt:          1_800_000_000,
		NotAfter:          1_800_000_600,
		ClusterID:         "cluster-1",
		SignerName:        "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
		Requester:         "system:bootstrap:abcdef",
		ExpirationSeconds: 3600,
		MachineKey:        [HashSize]byte{0xaa},
		RequestHash:       [HashSize]byte{0xbb},
	}
}

func testBindingEK() *Binding {
	b := testBinding()
	b.Road, b.AKName = RoadEK, append([]byte{0, 0x0b}, make([]byte, 32)...)
	return b
}

func testBindingDocument() *Binding {
	b := testBinding()
	b.Road = RoadDocument
	return b
}

func testHello() *Hello {
	return &Hello{Road: RoadAK, ClusterID: "cluster-1", TargetSigner: "example.com/signer", AKPublic: []byte{0, 1, 0, 0x0b}}
}

func must(t testing.TB, data []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// marshalled are good messages, by name, and what reads and writes each again.
func marshalled(t testing.TB) map[string][]byte {
	helloEK := testHello()
	helloEK.Road, helloEK.EKPublic = RoadEK, []byte{0x30, 0}
	binding := must(t, fst(testBinding().Marshal()), nil)
	bindingEK := must(t, fst(testBindingEK().Marshal()), nil)
	out := map[string][]byte{"binding": binding, "bindingEK": bindingEK, "bindingDocument": must(t, fst(testBindingDocument().Marshal()), nil)}
	for name, m := range map[string]interface{ Marshal() ([]byte, error) }{
		"hello":             testHello(),
		"helloEK":           helloEK,
		"challenge":         &Challenge{Binding: *testBinding(), Clear: bytes.Repeat([]byte{7}, SecretSize)},
		"challengeEK":       &Challenge{Binding: *testBindingEK(), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}},
		"challengeDocument": &Challenge{Binding: *testBindingDocument(), Clear: bytes.Repeat([]byte{7}, SecretSize)},
		"proof":             &Proof{Binding: binding, AKPublic: []byte{1}},
		"proofEK":           &Proof{Binding: bindingEK, EKPublic: []byte{0x30, 0}, AKPublic: []byte{1}},
		"bundle": &Bundle{Statements: []Statement{{oid.TCGAttestTPMCertify, []byte{0x30, 0}}, {oid.NodeAttestProof, []byte{5, 0}}},
			Certificates: [][]byte{{0x30, 1, 0}, {0x30, 0}}},
		"bundleBare": &Bundle{Statements: []Statement{{oid.NodeAttestHello, []byte{4, 1, 2}}}},
	} {
		data, err := m.Marshal()
		out[name] = must(t, data, err)
	}
	return out
}

func fst(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// again reads and writes a message.
func again(name string, data []byte) ([]byte, error) {
	for _, suffix := range []string{"EK", "Bare", "Document"} {
		name = strings.TrimSuffix(name, suffix)
	}
	switch name {
	case "hello":
		m, err := ParseHello(data)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "binding":
		m, err := ParseBinding(data)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "challenge":
		m, err := ParseChallenge(data)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "proof":
		m, _, err := ParseProof(data)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "bundle":
		m, err := ParseBundle(data)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	}
	panic("no message " + name)
}

func TestMessagesRoundTrip(t *testing.T) {
	for name, data := range marshalled(t) {
		got, err := again(name, data)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v\n got %x\nwant %x", name, err, got, data)
		}
	}
}

// Each message, cut anywhere or with a byte after it, is refused, and no byte
// of it can be changed into another encoding of the same message.
func TestMessagesAreCanonical(t *testing.T) {
	for name, data := range marshalled(t) {
		for n := range data {
			if _, err := again(name, data[:n]); err == nil {
				t.Errorf("%s cut to %d bytes: accepted", name, n)
			}
		}
		if _, err := again(name, append(bytes.Clone(data), 0)); err == nil {
			t.Errorf("%s with a byte after it: accepted", name)
		}
		for n := range data {
			for bit := range 8 {
				changed := bytes.Clone(data)
				changed[n] ^= 1 << bit
				got, err := again(name, changed)
				if err == nil && !bytes.Equal(got, changed) {
					t.Errorf("%s: byte %d, bit %d: read as another message", name, n, bit)
				}
				if err != nil && !hasCheck(err) {
					t.Errorf("%s: byte %d, bit %d: %v is no check", name, n, bit, err)
				}
			}
		}
	}
}

func hasCheck(err error) bool {
	var c refusal.Check
	return errors.As(err, &c)
}

func TestBindingFields(t *testing.T) {
	for name, change := range map[string]func(*Binding){
		"road":               func(b *Binding) { b.Road = 3 },
		"road below all":     func(b *Binding) { b.Road = -1 },
		"issuedAt":           func(b *Binding) { b.IssuedAt = -1 },
		"issuedAt too late":  func(b *Binding) { b.IssuedAt = der.MaxUnixSeconds + 1 },
		"notAfter":           func(b *Binding) { b.NotAfter = -1 },
		"notAfter too late":  func(b *Binding) { b.NotAfter = der.MaxUnixSeconds + 1 },
		"no clusterID":       func(b *Binding) { b.ClusterID = "" },
		"long clusterID":     func(b *Binding) { b.ClusterID = strings.Repeat("c", 129) },
		"clusterID no UTF-8": func(b *Binding) { b.ClusterID = "\xff" },
		"no signer":          func(b *Binding) { b.SignerName = "" },
		"long signer":        func(b *Binding) { b.SignerName = strings.Repeat("s", 572) },
		"long requester":     func(b *Binding) { b.Requester = strings.Repeat("r", der.MaxRequesterSize+1) },
		"expiration":         func(b *Binding) { b.ExpirationSeconds = -1 },
		"akName on road ak":  func(b *Binding) { b.AKName = testBindingEK().AKName },
		"no akName on ek":    func(b *Binding) { b.Road = RoadEK },
		"akName on document": func(b *Binding) { b.Road, b.AKName = RoadDocument, testBindingEK().AKName },
	} {
		t.Run(name, func(t *testing.T) {
			b := testBinding()
			change(b)
			if _, err := b.Marshal(); !errors.Is(err, der.CheckEncoding) {
				t.Errorf("%s: got %v, want %v", name, err, der.CheckEncoding)
			}
		})
	}
	b := testBinding()
	b.Requester = ""
	if _, err := b.Marshal(); err != nil {
		t.Errorf("empty requester: %v", err)
	}
}

// The wire format is plain ASN.1: encoding/asn1 agrees.
func TestBindingIsASN1(t *testing.T) {
	type binding struct {
		Version            int
		Road               asn1.Enumerated
		KeyID, Nonce       []byte
		IssuedAt, NotAfter int64
		ClusterID          string `asn1:"utf8"`
		SignerName         string `asn1:"utf8"`
		Requester          string `asn1:"utf8"`
		ExpirationSeconds  int
		MachineKey, AKName []byte
		RequestHash        []byte
	}
	b := testBindingEK()
	want, err := asn1.Marshal(binding{1, 1, b.KeyID[:], b.Nonce[:], b.IssuedAt, b.NotAfter, b.ClusterID, b.SignerName, b.Requester,
		int(b.ExpirationSeconds), b.MachineKey[:], b.AKName, b.RequestHash[:]})
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Marshal()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v\n got %x\nwant %x", err, got, want)
	}
	back, err := ParseBinding(got)
	if diff := cmp.Diff(b, back); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestSecretOfTheOtherRoad(t *testing.T) {
	for name, c := range map[string]*Challenge{
		"none":                 {Binding: *testBinding()},
		"none, document":       {Binding: *testBindingDocument()},
		"short, document":      {Binding: *testBindingDocument(), Clear: make([]byte, 31)},
		"credential, document": {Binding: *testBindingDocument(), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}},
		"both, document":       {Binding: *testBindingDocument(), Clear: make([]byte, 32), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}},
		"short":                {Binding: *testBinding(), Clear: make([]byte, 31)},
		"credential on ak":     {Binding: *testBinding(), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}},
		"clear on ek":          {Binding: *testBindingEK(), Clear: make([]byte, 32)},
		"no secret on ek":      {Binding: *testBindingEK()},
		"both":                 {Binding: *testBindingEK(), Clear: make([]byte, 32), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.Marshal(); !errors.Is(err, der.CheckEncoding) {
				t.Errorf("%s: got %v, want %v", name, err, der.CheckEncoding)
			}
		})
	}
}

func TestBundleLimits(t *testing.T) {
	one := Statement{oid.NodeAttestHello, []byte{5, 0}}
	cert := []byte{0x30, 0}
	inPEM := []byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
	for name, tt := range map[string]struct {
		bundle    *Bundle
		got, want string // in the error
	}{
		"no statement":        {&Bundle{}, "", ""},
		"too many statements": {&Bundle{Statements: make([]Statement, MaxStatements+1)}, "", ""},
		"two elements":        {&Bundle{Statements: []Statement{{oid.NodeAttestHello, []byte{5, 0, 5, 0}}}}, "", "one DER element"},
		"no element":          {&Bundle{Statements: []Statement{{oid.NodeAttestHello, nil}}}, "", "one DER element"},
		"too many certs":      {&Bundle{[]Statement{one}, slices.Repeat([][]byte{cert}, der.MaxCertificates+1)}, "", ""},
		"no certificate":      {&Bundle{[]Statement{one}, [][]byte{{4, 0}}}, "", ""},
		"two in one":          {&Bundle{[]Statement{one}, [][]byte{{0x30, 0, 0x30, 0}}}, "", "no bytes after the SEQUENCE"},
		"a certificate's PEM": {&Bundle{[]Statement{one}, [][]byte{inPEM}}, "in PEM", "DER"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tt.bundle.Marshal()
			var refused *refusal.Error
			if !errors.Is(err, der.CheckEncoding) || !errors.As(err, &refused) {
				t.Fatalf("got %v, want %v", err, der.CheckEncoding)
			}
			if !strings.Contains(refused.Got, tt.got) || !strings.Contains(refused.Want, tt.want) {
				t.Errorf("got %q and %q, want %q and %q", refused.Got, refused.Want, tt.got, tt.want)
			}
		})
	}
	big := append([]byte{0x30, 0x82, 0x40, 0x00}, make([]byte, 0x4000)...)
	if _, err := (&Bundle{Statements: []Statement{one}, Certificates: [][]byte{big}}).Marshal(); !errors.Is(err, der.CheckSize) {
		t.Errorf("a certificate over 16 KiB: got %v, want %v", err, der.CheckSize)
	}
	if _, err := ParseBundle(make([]byte, der.MaxEvidenceSize+1)); !errors.Is(err, der.CheckSize) {
		t.Errorf("a bundle over the limit: got %v, want %v", err, der.CheckSize)
	}
	empty := []byte{0x30, 0x0d, 0x30, 0x09, 0x30, 0x07, 0x06, 0x03, 0x55, 0x04, 0x03, 0x05, 0x00, 0x30, 0x00}
	if _, err := ParseBundle(empty); !errors.Is(err, der.CheckEncoding) {
		t.Errorf("empty certs: got %v, want %v", err, der.CheckEncoding)
	}
	if _, err := ParseBundle(append([]byte{0x30, 0x0b}, empty[2:13]...)); err != nil {
		t.Errorf("the same without certs: %v", err)
	}
}

func fuzzMessage(f *testing.F, name string) {
	for other, data := range marshalled(f) {
		if strings.HasPrefix(other, name) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := again(name, data)
		if err == nil && !bytes.Equal(got, data) {
			t.Errorf("not canonical: %x reads as %x", data, got)
		}
		if err != nil && !hasCheck(err) {
			t.Errorf("%v is no check", err)
		}
	})
}

func FuzzParseHello(f *testing.F)     { fuzzMessage(f, "hello") }
func FuzzParseBinding(f *testing.F)   { fuzzMessage(f, "binding") }
func FuzzParseChallenge(f *testing.F) { fuzzMessage(f, "challenge") }
func FuzzParseProof(f *testing.F)     { fuzzMessage(f, "proof") }
func FuzzParseBundle(f *testing.F)    { fuzzMessage(f, "bundle") }

func TestRoads(t *testing.T) {
	for road, want := range map[Road]string{RoadAK: "ak", RoadEK: "ek", RoadDocument: "document", 3: "road(3)", -1: "road(-1)"} {
		if road.String() != want {
			t.Errorf("got %s, want %s", road, want)
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	if _, err := (&Bundle{Statements: []Statement{{Stmt: []byte{5, 0}}}}).Marshal(); !errors.Is(err, der.CheckEncoding) {
		t.Errorf("a statement without a type: %v", err)
	}
	long := &Challenge{Binding: *testBindingEK(), Credential: &Credential{IDObject: make([]byte, maxIDObjectSize+1), EncryptedSecret: []byte{1}}}
	if _, err := long.Marshal(); !errors.Is(err, der.CheckEncoding) {
		t.Errorf("a long credential: %v", err)
	}
}
