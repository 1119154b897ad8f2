package document

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

func testHello() *Hello {
	return &Hello{ClusterID: "cluster-1", TargetSigner: "cluster.x-k8s.io/kube-apiserver-client-kubelet-example", Machine: "example:m1"}
}

// testBinding is the DER of a binding on a road.
func testBinding(t testing.TB, road message.Road) []byte {
	t.Helper()
	b := &message.Binding{Road: road, IssuedAt: 1_800_000_000, NotAfter: 1_800_000_600, ClusterID: "cluster-1", SignerName: "example.com/signer"}
	if road == message.RoadEK {
		b.AKName = append([]byte{0, 0x0b}, make([]byte, 32)...)
	}
	data, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func testProof(t testing.TB) *Proof {
	return &Proof{Binding: testBinding(t, message.RoadDocument), Machine: "example:m1"}
}

// again reads and writes a message.
func again(name string, data []byte) ([]byte, error) {
	switch name {
	case "hello":
		m, err := ParseHello(data)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	case "proof":
		m, err := ParseProof(data)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	default:
		m, err := ParseStatement(data)
		if err != nil {
			return nil, err
		}
		return MarshalStatement(m)
	}
}

// marshalled are good messages by name.
func marshalled(t testing.TB) map[string][]byte {
	t.Helper()
	hello, err1 := testHello().Marshal()
	proof, err2 := testProof(t).Marshal()
	statement, err3 := MarshalStatement([]byte("a document"))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"hello": hello, "proof": proof, "statement": statement}
}

// Each message has one encoding: cut anywhere or with a byte after it it is refused, and no
// bit of it can be changed into another encoding of the same message.
func TestMessagesAreCanonical(t *testing.T) {
	for name, data := range marshalled(t) {
		t.Run(name, func(t *testing.T) {
			if got, err := again(name, data); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%v\n got %x\nwant %x", err, got, data)
			}
			for n := range data {
				if _, err := again(name, data[:n]); err == nil {
					t.Errorf("cut to %d bytes: accepted", n)
				}
			}
			if _, err := again(name, append(bytes.Clone(data), 0)); err == nil {
				t.Error("with a byte after it: accepted")
			}
			for n := range data {
				for bit := range 8 {
					changed := bytes.Clone(data)
					changed[n] ^= 1 << bit
					if err := checkAgain(name, changed); err != nil {
						t.Errorf("byte %d, bit %d: %v", n, bit, err)
					}
				}
			}
		})
	}
}

// checkAgain: data is refused by a check, or has one encoding.
func checkAgain(name string, data []byte) error {
	got, err := again(name, data)
	if err == nil && !bytes.Equal(got, data) {
		return errors.New("read as another message")
	}
	if _, ok := errors.AsType[*refusal.Error](err); err != nil && !ok {
		return errors.Join(errors.New("no refusal"), err)
	}
	return nil
}

func fuzz(f *testing.F, name string) {
	f.Add(marshalled(f)[name])
	f.Add([]byte{})
	f.Add([]byte{0x30, 0})
	f.Add([]byte{4, 0x83, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := checkAgain(name, data); err != nil {
			t.Errorf("%x: %v", data, err)
		}
	})
}

func FuzzParseHello(f *testing.F)     { fuzz(f, "hello") }
func FuzzParseProof(f *testing.F)     { fuzz(f, "proof") }
func FuzzParseStatement(f *testing.F) { fuzz(f, "statement") }

// expectField expects a fault in one field; none for "".
func expectField(t *testing.T, err error, bad string) {
	t.Helper()
	e, _ := errors.AsType[*refusal.Error](err)
	if bad == "" && err != nil || bad != "" && (e == nil || e.Check != refusal.Check("message-encoding") || e.Got != "a bad "+bad) {
		t.Errorf("got %v, want a bad %s", err, bad)
	}
}

// list is a SEQUENCE of elements, and text and octets are such elements.
func list(parts ...[]byte) []byte { return element(asn1.SEQUENCE, bytes.Join(parts, nil)) }

func element(tag asn1.Tag, v []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(v) })
	return b.BytesOrPanic()
}

func text(v string) []byte { return element(asn1.UTF8String, []byte(v)) }

func TestFieldsOfHello(t *testing.T) {
	version, c, s, m := element(asn1.INTEGER, []byte{1}), text("c"), text("s"), text("m")
	for name, c := range map[string]struct {
		change func(*Hello)
		bad    string
		same   []byte // in DER; nil where it is not tried
	}{
		"as it is":               {func(*Hello) {}, "", nil},
		"no cluster":             {func(h *Hello) { h.ClusterID = "" }, "document hello clusterID", list(version, text(""), s, m)},
		"the longest cluster":    {func(h *Hello) { h.ClusterID = strings.Repeat("c", der.MaxClusterIDSize) }, "", list(version, text(strings.Repeat("c", der.MaxClusterIDSize)), s, m)},
		"a longer cluster":       {func(h *Hello) { h.ClusterID = strings.Repeat("c", der.MaxClusterIDSize+1) }, "document hello clusterID", list(version, text(strings.Repeat("c", der.MaxClusterIDSize+1)), s, m)},
		"a cluster not in UTF-8": {func(h *Hello) { h.ClusterID = "\xff" }, "document hello clusterID", list(version, text("\xff"), s, m)},
		"no signer":              {func(h *Hello) { h.TargetSigner = "" }, "document hello targetSigner", list(version, c, text(""), m)},
		"the longest signer":     {func(h *Hello) { h.TargetSigner = strings.Repeat("s", der.MaxSignerNameSize) }, "", list(version, c, text(strings.Repeat("s", der.MaxSignerNameSize)), m)},
		"a longer signer":        {func(h *Hello) { h.TargetSigner = strings.Repeat("s", der.MaxSignerNameSize+1) }, "document hello targetSigner", list(version, c, text(strings.Repeat("s", der.MaxSignerNameSize+1)), m)},
		"no machine":             {func(h *Hello) { h.Machine = "" }, "document hello machine", list(version, c, s, text(""))},
		"the longest machine":    {func(h *Hello) { h.Machine = strings.Repeat("m", MaxMachineSize) }, "", list(version, c, s, text(strings.Repeat("m", MaxMachineSize)))},
		"a longer machine":       {func(h *Hello) { h.Machine = strings.Repeat("m", MaxMachineSize+1) }, "document hello machine", list(version, c, s, text(strings.Repeat("m", MaxMachineSize+1)))},
		"a machine not in UTF-8": {func(h *Hello) { h.Machine = "\xff" }, "document hello machine", list(version, c, s, text("\xff"))},
	} {
		t.Run(name, func(t *testing.T) {
			h := testHello()
			c.change(h)
			data, err := h.Marshal()
			expectField(t, err, c.bad)
			if err == nil {
				_, err = ParseHello(data)
				expectField(t, err, "")
			}
			if c.same != nil {
				_, err = ParseHello(c.same)
				expectField(t, err, c.bad)
			}
		})
	}
	for name, c := range map[string]struct {
		data []byte
		bad  string
	}{
		"nothing":            {nil, "document hello frame"},
		"no list":            {text("c"), "document hello frame"},
		"an empty list":      {list(), "document hello version"},
		"a version in text":  {list(text("1"), c, s, m), "document hello version"},
		"no machine":         {list(version, c, s), "document hello machine"},
		"a fifth field":      {list(version, c, s, m, m), "document hello frame"},
		"something after":    {append(list(version, c, s, m), 0), "document hello frame"},
		"a machine in bytes": {list(version, c, s, element(asn1.OCTET_STRING, []byte("m"))), "document hello machine"},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, err := ParseHello(c.data)
			expectField(t, err, c.bad)
		})
	}
	if _, err := ParseHello(list(element(asn1.INTEGER, []byte{2}), c, s, m)); !errors.Is(err, refusal.Check("message-version")) {
		t.Errorf("version 2: %v", err)
	}
	if _, err := ParseHello(make([]byte, der.MaxEvidenceSize+1)); !errors.Is(err, refusal.Check("message-size")) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestFieldsOfProof(t *testing.T) {
	binding, m := testBinding(t, message.RoadDocument), text("m")
	for name, c := range map[string]struct {
		proof Proof
		bad   string
	}{
		"as it is":               {Proof{binding, "m"}, ""},
		"no binding":             {Proof{nil, "m"}, "binding frame"},
		"a binding and a byte":   {Proof{append(bytes.Clone(binding), 0), "m"}, "binding frame"},
		"a binding on road AK":   {Proof{testBinding(t, message.RoadAK), "m"}, "document proof road"},
		"a binding on road EK":   {Proof{testBinding(t, message.RoadEK), "m"}, "document proof road"},
		"no machine":             {Proof{binding, ""}, "document proof machine"},
		"the longest machine":    {Proof{binding, strings.Repeat("m", MaxMachineSize)}, ""},
		"a longer machine":       {Proof{binding, strings.Repeat("m", MaxMachineSize+1)}, "document proof machine"},
		"a machine not in UTF-8": {Proof{binding, "\xff"}, "document proof machine"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := c.proof.Marshal()
			expectField(t, err, c.bad)
			if err == nil {
				_, err = ParseProof(data)
				expectField(t, err, "")
			}
		})
	}
	for name, c := range map[string]struct {
		data []byte
		bad  string
	}{
		"nothing":              {nil, "document proof frame"},
		"no list":              {m, "document proof frame"},
		"an empty list":        {list(), "document proof binding"},
		"a binding in text":    {list(text("b"), m), "document proof binding"},
		"a bad binding":        {list(list(), m), "binding version"},
		"a binding on road AK": {list(testBinding(t, message.RoadAK), m), "document proof road"},
		"a binding on road EK": {list(testBinding(t, message.RoadEK), m), "document proof road"},
		"no machine":           {list(binding), "document proof machine"},
		"an empty machine":     {list(binding, text("")), "document proof machine"},
		"the longest machine":  {list(binding, text(strings.Repeat("m", MaxMachineSize))), ""},
		"a longer machine":     {list(binding, text(strings.Repeat("m", MaxMachineSize+1))), "document proof machine"},
		"a third field":        {list(binding, m, m), "document proof frame"},
		"something after":      {append(list(binding, m), 0), "document proof frame"},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			p, err := ParseProof(c.data)
			expectField(t, err, c.bad)
			if (p != nil) != (c.bad == "") {
				t.Errorf("got %v", p)
			}
		})
	}
	if _, err := ParseProof(make([]byte, der.MaxEvidenceSize+1)); !errors.Is(err, refusal.Check("message-size")) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestSizesOfStatements(t *testing.T) {
	for size, bad := range map[int]string{0: "document bytes", 1: "", MaxDocumentSize: "", MaxDocumentSize + 1: "document bytes"} {
		data, err := MarshalStatement(make([]byte, size))
		expectField(t, err, bad)
		if (data != nil) != (bad == "") {
			t.Errorf("%d bytes: got %d", size, len(data))
		}
		got, err := ParseStatement(element(asn1.OCTET_STRING, make([]byte, size)))
		expectField(t, err, bad)
		if bad == "" && len(got) != size {
			t.Errorf("%d bytes: got %d", size, len(got))
		}
	}
	for name, c := range map[string]struct {
		data []byte
		bad  string
	}{
		"nothing":         {nil, "document frame"},
		"text":            {text("document"), "document frame"},
		"something after": {append(element(asn1.OCTET_STRING, []byte{1}), 0), "document frame"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseStatement(c.data)
			expectField(t, err, c.bad)
		})
	}
}
