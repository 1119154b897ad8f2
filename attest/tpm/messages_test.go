package tpm

import (
	"bytes"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/oid"
)

func testBinding() *Binding {
	return &Binding{
		Road:              RoadAK,
		KeyID:             KeyID{1, 2, 3, 4, 5, 6, 7, 8},
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

func testHello() *Hello {
	return &Hello{Road: RoadAK, ClusterID: "cluster-1", TargetSigner: "example.com/signer", AKPublic: []byte{0, 1, 0, 0x0b}}
}

func must(t testing.TB, der []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// marshalled are good messages, by name, and what reads and writes each again.
func marshalled(t testing.TB) map[string][]byte {
	helloEK := testHello()
	helloEK.Road, helloEK.EKPublic = RoadEK, []byte{0x30, 0}
	binding := must(t, fst(testBinding().Marshal()), nil)
	bindingEK := must(t, fst(testBindingEK().Marshal()), nil)
	out := map[string][]byte{"binding": binding, "bindingEK": bindingEK}
	for name, m := range map[string]interface{ Marshal() ([]byte, error) }{
		"hello":       testHello(),
		"helloEK":     helloEK,
		"challenge":   &Challenge{Binding: *testBinding(), Clear: bytes.Repeat([]byte{7}, SecretSize)},
		"challengeEK": &Challenge{Binding: *testBindingEK(), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}},
		"proof":       &Proof{Binding: binding, AKPublic: []byte{1}},
		"proofEK":     &Proof{Binding: bindingEK, EKPublic: []byte{0x30, 0}, AKPublic: []byte{1}},
		"bundle": &AttestationBundle{Statements: []AttestationStatement{{oid.TCGAttestTPMCertify, []byte{0x30, 0}}, {oid.NodeAttestProof, []byte{5, 0}}},
			Certificates: [][]byte{{0x30, 1, 0}, {0x30, 0}}},
		"bundleBare": &AttestationBundle{Statements: []AttestationStatement{{oid.NodeAttestHello, []byte{4, 1, 2}}}},
	} {
		der, err := m.Marshal()
		out[name] = must(t, der, err)
	}
	out["certify"] = must(t, fst(MarshalTCGAttestCertify(&CertifyEvidence{Attest: []byte{1}, Signature: []byte{2}, Public: []byte{3}})), nil)
	out["certifyBare"] = must(t, fst(MarshalTCGAttestCertify(&CertifyEvidence{Attest: []byte{1}, Signature: []byte{2}})), nil)
	return out
}

func fst(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// again reads and writes a message.
func again(name string, der []byte) ([]byte, error) {
	switch strings.TrimSuffix(strings.TrimSuffix(name, "EK"), "Bare") {
	case "hello":
		m, err := ParseHello(der)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "binding":
		m, err := ParseBinding(der)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "challenge":
		m, err := ParseChallenge(der)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "proof":
		m, err := ParseProof(der)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "bundle":
		m, err := ParseAttestationBundle(der)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "certify":
		m, err := ParseTCGAttestCertify(der)
		if err != nil {
			return nil, err
		}
		return MarshalTCGAttestCertify(m)
	}
	panic("no message " + name)
}

func TestMessagesRoundTrip(t *testing.T) {
	for name, der := range marshalled(t) {
		got, err := again(name, der)
		if err != nil || !bytes.Equal(got, der) {
			t.Errorf("%s: %v\n got %x\nwant %x", name, err, got, der)
		}
	}
}

// Each message, cut anywhere or with a byte behind it, is refused, and no byte
// of it can be changed into another encoding of the same message.
func TestMessagesAreCanonical(t *testing.T) {
	for name, der := range marshalled(t) {
		for n := range der {
			if _, err := again(name, der[:n]); err == nil {
				t.Errorf("%s cut to %d bytes: accepted", name, n)
			}
		}
		if _, err := again(name, append(bytes.Clone(der), 0)); err == nil {
			t.Errorf("%s with a byte behind it: accepted", name)
		}
		for n := range der {
			for bit := range 8 {
				changed := bytes.Clone(der)
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
	var c Check
	return errors.As(err, &c)
}

func TestBindingFields(t *testing.T) {
	for name, change := range map[string]func(*Binding){
		"road":               func(b *Binding) { b.Road = 2 },
		"issuedAt":           func(b *Binding) { b.IssuedAt = -1 },
		"issuedAt too late":  func(b *Binding) { b.IssuedAt = maxUnixSeconds + 1 },
		"notAfter":           func(b *Binding) { b.NotAfter = -1 },
		"notAfter too late":  func(b *Binding) { b.NotAfter = maxUnixSeconds + 1 },
		"no clusterID":       func(b *Binding) { b.ClusterID = "" },
		"long clusterID":     func(b *Binding) { b.ClusterID = strings.Repeat("c", 129) },
		"clusterID no UTF-8": func(b *Binding) { b.ClusterID = "\xff" },
		"no signer":          func(b *Binding) { b.SignerName = "" },
		"long signer":        func(b *Binding) { b.SignerName = strings.Repeat("s", 572) },
		"long requester":     func(b *Binding) { b.Requester = strings.Repeat("r", MaxRequesterSize+1) },
		"expiration":         func(b *Binding) { b.ExpirationSeconds = -1 },
		"akName on road ak":  func(b *Binding) { b.AKName = testBindingEK().AKName },
		"no akName on ek":    func(b *Binding) { b.Road = RoadEK },
	} {
		b := testBinding()
		change(b)
		if _, err := b.Marshal(); !errors.Is(err, CheckEncoding) {
			t.Errorf("%s: got %v, want %v", name, err, CheckEncoding)
		}
	}
	b := testBinding()
	b.Requester = ""
	if _, err := b.Marshal(); err != nil {
		t.Errorf("empty requester: %v", err)
	}
}

// The wire format is ASN.1 that anybody's encoder writes: encoding/asn1 agrees.
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
		"none":             {Binding: *testBinding()},
		"short":            {Binding: *testBinding(), Clear: make([]byte, 31)},
		"credential on ak": {Binding: *testBinding(), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}},
		"clear on ek":      {Binding: *testBindingEK(), Clear: make([]byte, 32)},
		"no secret on ek":  {Binding: *testBindingEK()},
		"both":             {Binding: *testBindingEK(), Clear: make([]byte, 32), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}},
	} {
		if _, err := c.Marshal(); !errors.Is(err, CheckEncoding) {
			t.Errorf("%s: got %v, want %v", name, err, CheckEncoding)
		}
	}
}

func TestBundleLimits(t *testing.T) {
	one := AttestationStatement{oid.NodeAttestHello, []byte{5, 0}}
	cert := []byte{0x30, 0}
	for name, b := range map[string]*AttestationBundle{
		"no statement":        {},
		"too many statements": {Statements: make([]AttestationStatement, MaxStatements+1)},
		"two elements":        {Statements: []AttestationStatement{{oid.NodeAttestHello, []byte{5, 0, 5, 0}}}},
		"no element":          {Statements: []AttestationStatement{{oid.NodeAttestHello, nil}}},
		"too many certs":      {Statements: []AttestationStatement{one}, Certificates: [][]byte{cert, cert, cert, cert, cert, cert, cert, cert, cert}},
		"no certificate":      {Statements: []AttestationStatement{one}, Certificates: [][]byte{{4, 0}}},
	} {
		if _, err := b.Marshal(); !errors.Is(err, CheckEncoding) {
			t.Errorf("%s: got %v, want %v", name, err, CheckEncoding)
		}
	}
	big := append([]byte{0x30, 0x82, 0x40, 0x00}, make([]byte, 0x4000)...)
	if _, err := (&AttestationBundle{Statements: []AttestationStatement{one}, Certificates: [][]byte{big}}).Marshal(); !errors.Is(err, CheckSize) {
		t.Errorf("a certificate over 16 KiB: got %v, want %v", err, CheckSize)
	}
	if _, err := ParseAttestationBundle(make([]byte, MaxEvidenceSize+1)); !errors.Is(err, CheckSize) {
		t.Errorf("a bundle over the limit: got %v, want %v", err, CheckSize)
	}
	empty := []byte{0x30, 0x0d, 0x30, 0x09, 0x30, 0x07, 0x06, 0x03, 0x55, 0x04, 0x03, 0x05, 0x00, 0x30, 0x00}
	if _, err := ParseAttestationBundle(empty); !errors.Is(err, CheckEncoding) {
		t.Errorf("empty certs: got %v, want %v", err, CheckEncoding)
	}
	if _, err := ParseAttestationBundle(append([]byte{0x30, 0x0b}, empty[2:13]...)); err != nil {
		t.Errorf("the same without certs: %v", err)
	}
}

func TestChallengeMessage(t *testing.T) {
	der := marshalled(t)["challenge"]
	got, err := ParseChallengeMessage(ChallengeMessage(der))
	if err != nil || !bytes.Equal(got, der) {
		t.Fatalf("%v, %x", err, got)
	}
	message := ChallengeMessage([]byte{1, 2, 3, 4})
	for name, bad := range map[string]string{
		"no padding": strings.TrimRight(message, "="),
		"line break": message[:4] + "\n" + message[4:],
		"space":      message + " ",
		"other bits": "AQIDBB==",
		"url":        "-_-_",
		"more":       message + message,
	} {
		if _, err := ParseChallengeMessage(bad); !errors.Is(err, CheckEncoding) {
			t.Errorf("%s: got %v, want %v", name, err, CheckEncoding)
		}
	}
	if _, err := ParseChallengeMessage(strings.Repeat("A", 30<<10)); !errors.Is(err, CheckSize) {
		t.Errorf("long: got %v, want %v", err, CheckSize)
	}
}

func fuzzMessage(f *testing.F, name string) {
	for other, der := range marshalled(f) {
		if strings.HasPrefix(other, name) {
			f.Add(der)
		}
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		got, err := again(name, der)
		if err == nil && !bytes.Equal(got, der) {
			t.Errorf("not canonical: %x reads as %x", der, got)
		}
		if err != nil && !hasCheck(err) {
			t.Errorf("%v is no check", err)
		}
	})
}

func FuzzParseHello(f *testing.F)             { fuzzMessage(f, "hello") }
func FuzzParseBinding(f *testing.F)           { fuzzMessage(f, "binding") }
func FuzzParseChallenge(f *testing.F)         { fuzzMessage(f, "challenge") }
func FuzzParseProof(f *testing.F)             { fuzzMessage(f, "proof") }
func FuzzParseAttestationBundle(f *testing.F) { fuzzMessage(f, "bundle") }
func FuzzParseTCGAttestCertify(f *testing.F)  { fuzzMessage(f, "certify") }

func FuzzParseChallengeMessage(f *testing.F) {
	f.Add(ChallengeMessage([]byte{1, 2, 3, 4}))
	f.Add("AQID")
	f.Fuzz(func(t *testing.T, message string) {
		der, err := ParseChallengeMessage(message)
		if err == nil && ChallengeMessage(der) != message {
			t.Errorf("not canonical: %q", message)
		}
	})
}
