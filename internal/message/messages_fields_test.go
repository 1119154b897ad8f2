package message

import (
	"bytes"
	stdasn1 "encoding/asn1"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// A fault of a message names the field that it is in, so that an operator need not
// guess: bad is "hello ekPublic". "" stands for no fault.
func expectField(t *testing.T, err error, bad string) {
	t.Helper()
	if bad == "" {
		expectCheck(t, err, "")
		return
	}
	expectCheck(t, err, der.CheckEncoding)
	var e *refusal.Error
	if errors.As(err, &e); e.Got != "a bad "+bad {
		t.Errorf("got %q, want a bad %s", e.Got, bad)
	}
}

func utf8String(v string) []byte { return element(asn1.UTF8String, []byte(v)) }

// with is the SEQUENCE with element n in another form; nil leaves it out.
func with(t *testing.T, data []byte, n int, v []byte) []byte {
	t.Helper()
	parts := elements(t, data)
	parts[n] = v
	return seq(parts...)
}

// ekHello is a hello of an EK without a certificate.
func ekHello() *Hello {
	h := testHello()
	h.Road, h.EKPublic = RoadEK, []byte{0x30, 0}
	return h
}

func TestFieldsOfHello(t *testing.T) {
	most, over := make([]byte, der.MaxPublicSize), make([]byte, der.MaxPublicSize+1)
	for name, c := range map[string]struct {
		change func(*Hello)
		bad    string
	}{
		"as it is":               {func(*Hello) {}, ""},
		"no road":                {func(h *Hello) { h.Road, h.EKPublic = 3, nil }, "hello road"},
		"a road below all":       {func(h *Hello) { h.Road, h.EKPublic = -1, nil }, "hello road"},
		"the road of documents":  {func(h *Hello) { h.Road, h.EKPublic = RoadDocument, nil }, "hello road"},
		"an EK on road AK":       {func(h *Hello) { h.Road = RoadAK }, "hello ekPublic"},
		"an empty EK":            {func(h *Hello) { h.EKPublic = []byte{} }, "hello ekPublic"},
		"the shortest EK":        {func(h *Hello) { h.EKPublic = []byte{1} }, ""},
		"the longest EK":         {func(h *Hello) { h.EKPublic = most }, ""},
		"a longer EK":            {func(h *Hello) { h.EKPublic = over }, "hello ekPublic"},
		"no AK":                  {func(h *Hello) { h.AKPublic = nil }, "hello akPublic"},
		"the shortest AK":        {func(h *Hello) { h.AKPublic = []byte{1} }, ""},
		"the longest AK":         {func(h *Hello) { h.AKPublic = most }, ""},
		"a longer AK":            {func(h *Hello) { h.AKPublic = over }, "hello akPublic"},
		"no cluster":             {func(h *Hello) { h.ClusterID = "" }, "hello clusterID"},
		"the longest cluster":    {func(h *Hello) { h.ClusterID = strings.Repeat("c", der.MaxClusterIDSize) }, ""},
		"a longer cluster":       {func(h *Hello) { h.ClusterID = strings.Repeat("c", der.MaxClusterIDSize+1) }, "hello clusterID"},
		"a cluster not in UTF-8": {func(h *Hello) { h.ClusterID = "\xff" }, "hello clusterID"},
		"no signer":              {func(h *Hello) { h.TargetSigner = "" }, "hello targetSigner"},
		"the longest signer":     {func(h *Hello) { h.TargetSigner = strings.Repeat("s", der.MaxSignerNameSize) }, ""},
		"a longer signer":        {func(h *Hello) { h.TargetSigner = strings.Repeat("s", der.MaxSignerNameSize+1) }, "hello targetSigner"},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			h := ekHello()
			c.change(h)
			data, err := h.Marshal()
			expectField(t, err, c.bad)
			if err == nil {
				_, err = ParseHello(data)
				expectField(t, err, "")
			}
		})
	}
	good := must(t, fst(ekHello().Marshal()), nil)
	for name, c := range map[string]struct {
		data []byte
		bad  string
	}{
		"a version that is no INTEGER":  {with(t, good, 0, octets([]byte{1})), "hello version"},
		"no road":                       {with(t, good, 1, element(asn1.ENUM, []byte{3})), "hello road"},
		"the road of documents":         {with(t, good, 1, element(asn1.ENUM, []byte{2})), "hello road"},
		"a road that is no ENUMERATED":  {with(t, good, 1, element(asn1.INTEGER, []byte{1})), "hello road"},
		"no cluster":                    {with(t, good, 2, utf8String("")), "hello clusterID"},
		"a cluster not in UTF-8":        {with(t, good, 2, utf8String("\xff")), "hello clusterID"},
		"a longer cluster":              {with(t, good, 2, utf8String(strings.Repeat("c", der.MaxClusterIDSize+1))), "hello clusterID"},
		"a longer signer":               {with(t, good, 3, utf8String(strings.Repeat("s", der.MaxSignerNameSize+1))), "hello targetSigner"},
		"an empty EK":                   {with(t, good, 4, element(der.Context0, nil)), "hello ekPublic"},
		"a longer EK":                   {with(t, good, 4, element(der.Context0, over)), "hello ekPublic"},
		"an EK on road AK":              {with(t, good, 1, element(asn1.ENUM, []byte{0})), "hello ekPublic"},
		"no AK":                         {with(t, good, 5, nil), "hello akPublic"},
		"an empty AK":                   {with(t, good, 5, octets(nil)), "hello akPublic"},
		"a longer AK":                   {with(t, good, 5, octets(over)), "hello akPublic"},
		"something after the AK":        {with(t, good, 5, bytes.Join([][]byte{octets([]byte{1}), octets([]byte{1})}, nil)), "hello frame"},
		"something after the hello":     {append(bytes.Clone(good), 0), "hello frame"},
		"a longer EK and a shorter one": {with(t, good, 4, append(element(der.Context0, over), element(der.Context0, []byte{1})...)), "hello ekPublic"},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, err := ParseHello(c.data)
			expectField(t, err, c.bad)
		})
	}
}

func TestFieldsOfBinding(t *testing.T) {
	const last = 253402300799
	for name, c := range map[string]struct {
		change func(*Binding)
		bad    string
	}{
		"as it is":                 {func(*Binding) {}, ""},
		"no road":                  {func(b *Binding) { b.Road = 3 }, "binding road"},
		"a road below all":         {func(b *Binding) { b.Road = -1 }, "binding road"},
		"a Name with a document":   {func(b *Binding) { b.Road = RoadDocument }, "binding akName"},
		"a document":               {func(b *Binding) { b.Road, b.AKName = RoadDocument, nil }, ""},
		"a document, empty Name":   {func(b *Binding) { b.Road, b.AKName = RoadDocument, []byte{} }, ""},
		"issued at 0":              {func(b *Binding) { b.IssuedAt = 0 }, ""},
		"issued before":            {func(b *Binding) { b.IssuedAt = -1 }, "binding issuedAt"},
		"issued at the last":       {func(b *Binding) { b.IssuedAt = last }, ""},
		"issued after the last":    {func(b *Binding) { b.IssuedAt = last + 1 }, "binding issuedAt"},
		"over at 0":                {func(b *Binding) { b.NotAfter = 0 }, ""},
		"over before":              {func(b *Binding) { b.NotAfter = -1 }, "binding notAfter"},
		"over at the last":         {func(b *Binding) { b.NotAfter = last }, ""},
		"over after the last":      {func(b *Binding) { b.NotAfter = last + 1 }, "binding notAfter"},
		"less than no lifetime":    {func(b *Binding) { b.ExpirationSeconds = -1 }, "binding expirationSeconds"},
		"the longest lifetime":     {func(b *Binding) { b.ExpirationSeconds = 1<<31 - 1 }, ""},
		"a Name of 2 bytes":        {func(b *Binding) { b.AKName = make([]byte, 2) }, "binding akName"},
		"a Name of 3 bytes":        {func(b *Binding) { b.AKName = make([]byte, 3) }, ""},
		"the longest Name":         {func(b *Binding) { b.AKName = make([]byte, MaxNameSize) }, ""},
		"a longer Name":            {func(b *Binding) { b.AKName = make([]byte, MaxNameSize+1) }, "binding akName"},
		"a Name on road AK":        {func(b *Binding) { b.Road = RoadAK }, "binding akName"},
		"no cluster":               {func(b *Binding) { b.ClusterID = "" }, "binding clusterID"},
		"the longest cluster":      {func(b *Binding) { b.ClusterID = strings.Repeat("c", der.MaxClusterIDSize) }, ""},
		"a longer cluster":         {func(b *Binding) { b.ClusterID = strings.Repeat("c", der.MaxClusterIDSize+1) }, "binding clusterID"},
		"no signer":                {func(b *Binding) { b.SignerName = "" }, "binding signerName"},
		"the longest signer":       {func(b *Binding) { b.SignerName = strings.Repeat("s", der.MaxSignerNameSize) }, ""},
		"a longer signer":          {func(b *Binding) { b.SignerName = strings.Repeat("s", der.MaxSignerNameSize+1) }, "binding signerName"},
		"no requester":             {func(b *Binding) { b.Requester = "" }, ""},
		"the longest requester":    {func(b *Binding) { b.Requester = strings.Repeat("r", der.MaxRequesterSize) }, ""},
		"a longer requester":       {func(b *Binding) { b.Requester = strings.Repeat("r", der.MaxRequesterSize+1) }, "binding requester"},
		"a requester not in UTF-8": {func(b *Binding) { b.Requester = "\xff" }, "binding requester"},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			b := testBindingEK()
			c.change(b)
			data, err := b.Marshal()
			expectField(t, err, c.bad)
			if err == nil {
				_, err = ParseBinding(data)
				expectField(t, err, "")
			}
		})
	}
	good := must(t, fst(testBindingEK().Marshal()), nil)
	for name, c := range map[string]struct {
		n   int
		v   []byte
		bad string
	}{
		"no road":                       {1, element(asn1.ENUM, []byte{3}), "binding road"},
		"a road below all":              {1, element(asn1.ENUM, []byte{0xff}), "binding road"},
		"a Name with a document":        {1, element(asn1.ENUM, []byte{2}), "binding akName"},
		"a key ID of 7 bytes":           {2, octets(make([]byte, 7)), "binding keyID"},
		"a key ID of 9 bytes":           {2, octets(make([]byte, 9)), "binding keyID"},
		"a nonce of 15 bytes":           {3, octets(make([]byte, 15)), "binding nonce"},
		"a nonce of 17 bytes":           {3, octets(make([]byte, 17)), "binding nonce"},
		"issued before 0":               {4, element(asn1.INTEGER, []byte{0xff}), "binding issuedAt"},
		"over before 0":                 {5, element(asn1.INTEGER, []byte{0xff}), "binding notAfter"},
		"no cluster":                    {6, utf8String(""), "binding clusterID"},
		"a longer cluster":              {6, utf8String(strings.Repeat("c", der.MaxClusterIDSize+1)), "binding clusterID"},
		"no signer":                     {7, utf8String(""), "binding signerName"},
		"a longer signer":               {7, utf8String(strings.Repeat("s", der.MaxSignerNameSize+1)), "binding signerName"},
		"a longer requester":            {8, utf8String(strings.Repeat("r", der.MaxRequesterSize+1)), "binding requester"},
		"a lifetime over 31 bits":       {9, element(asn1.INTEGER, []byte{0, 0x80, 0, 0, 0}), "binding expirationSeconds"},
		"a machine key of 31 bytes":     {10, octets(make([]byte, 31)), "binding machineKey"},
		"a machine key of 33 bytes":     {10, octets(make([]byte, 33)), "binding machineKey"},
		"a longer Name":                 {11, octets(make([]byte, MaxNameSize+1)), "binding akName"},
		"a Name of 2 bytes":             {11, octets(make([]byte, 2)), "binding akName"},
		"a request hash of 31 bytes":    {12, octets(make([]byte, 31)), "binding requestHash"},
		"a request hash of 33 bytes":    {12, octets(make([]byte, 33)), "binding requestHash"},
		"something after":               {12, append(octets(make([]byte, 32)), octets(nil)...), "binding frame"},
		"a cluster, and it once more":   {6, append(utf8String(""), utf8String("c")...), "binding clusterID"},
		"a signer, and it once more":    {7, append(utf8String(""), utf8String("s")...), "binding signerName"},
		"a requester, and it once more": {8, append(utf8String(strings.Repeat("r", der.MaxRequesterSize+1)), utf8String("r")...), "binding requester"},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, err := ParseBinding(with(t, good, c.n, c.v))
			expectField(t, err, c.bad)
		})
	}
	for name, data := range map[string][]byte{"no list": octets(good), "something after the list": append(bytes.Clone(good), 0)} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, err := ParseBinding(data)
			expectField(t, err, "binding frame")
		})
	}
}

func TestFieldsOfChallenge(t *testing.T) {
	onAK := func() *Challenge { return &Challenge{Binding: *testBinding(), Clear: make([]byte, SecretSize)} }
	onEK := func() *Challenge {
		return &Challenge{Binding: *testBindingEK(), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}}
	}
	credential := func(change func(*Credential)) *Challenge {
		c := onEK()
		change(c.Credential)
		return c
	}
	for name, c := range map[string]struct {
		challenge *Challenge
		bad       string
	}{
		"road AK":                     {onAK(), ""},
		"road EK":                     {onEK(), ""},
		"a document":                  {&Challenge{Binding: *testBindingDocument(), Clear: make([]byte, SecretSize)}, ""},
		"a document, 33 bytes":        {&Challenge{Binding: *testBindingDocument(), Clear: make([]byte, SecretSize+1)}, "challenge clear"},
		"a document, a credential":    {&Challenge{Binding: *testBindingDocument(), Credential: onEK().Credential}, "challenge secret"},
		"no binding":                  {&Challenge{Clear: make([]byte, SecretSize)}, "binding clusterID"},
		"road AK, no secret":          {&Challenge{Binding: *testBinding()}, "challenge secret"},
		"road AK, 31 bytes":           {&Challenge{Binding: *testBinding(), Clear: make([]byte, SecretSize-1)}, "challenge clear"},
		"road AK, 33 bytes":           {&Challenge{Binding: *testBinding(), Clear: make([]byte, SecretSize+1)}, "challenge clear"},
		"road AK, both":               {&Challenge{Binding: *testBinding(), Clear: make([]byte, SecretSize), Credential: onEK().Credential}, "challenge secret"},
		"road EK, both":               {&Challenge{Binding: *testBindingEK(), Clear: make([]byte, SecretSize), Credential: onEK().Credential}, "challenge secret"},
		"road EK, none":               {&Challenge{Binding: *testBindingEK()}, "challenge secret"},
		"no idObject":                 {credential(func(c *Credential) { c.IDObject = nil }), "challenge idObject"},
		"the longest idObject":        {credential(func(c *Credential) { c.IDObject = make([]byte, maxIDObjectSize) }), ""},
		"a longer idObject":           {credential(func(c *Credential) { c.IDObject = make([]byte, maxIDObjectSize+1) }), "challenge idObject"},
		"no encryptedSecret":          {credential(func(c *Credential) { c.EncryptedSecret = nil }), "challenge encryptedSecret"},
		"the longest encryptedSecret": {credential(func(c *Credential) { c.EncryptedSecret = make([]byte, maxEncryptedSecretSize) }), ""},
		"a longer encryptedSecret":    {credential(func(c *Credential) { c.EncryptedSecret = make([]byte, maxEncryptedSecretSize+1) }), "challenge encryptedSecret"},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			data, err := c.challenge.Marshal()
			expectField(t, err, c.bad)
			if err == nil {
				_, err = ParseChallenge(data)
				expectField(t, err, "")
			}
		})
	}
	ak, ek := must(t, fst(testBinding().Marshal()), nil), must(t, fst(testBindingEK().Marshal()), nil)
	one := octets([]byte{1})
	pair := func(parts ...[]byte) []byte { return element(der.Context1Constructed, bytes.Join(parts, nil)) }
	for name, c := range map[string]struct {
		data []byte
		bad  string
	}{
		"no list":                    {octets(ak), "challenge frame"},
		"nothing in it":              {seq(), "challenge binding"},
		"a binding that is no list":  {seq(octets(ak), element(der.Context0, make([]byte, SecretSize))), "challenge binding"},
		"a bad binding":              {seq(seq(), element(der.Context0, make([]byte, SecretSize))), "binding version"},
		"a shorter secret":           {seq(ak, element(der.Context0, make([]byte, SecretSize-1))), "challenge clear"},
		"a longer secret":            {seq(ak, element(der.Context0, make([]byte, SecretSize+1))), "challenge clear"},
		"no secret":                  {seq(ak), "challenge secret"},
		"an empty idObject":          {seq(ek, pair(octets(nil), one)), "challenge idObject"},
		"a longer idObject":          {seq(ek, pair(octets(make([]byte, maxIDObjectSize+1)), one)), "challenge idObject"},
		"no encryptedSecret":         {seq(ek, pair(one)), "challenge encryptedSecret"},
		"an empty encryptedSecret":   {seq(ek, pair(one, octets(nil))), "challenge encryptedSecret"},
		"a longer encryptedSecret":   {seq(ek, pair(one, octets(make([]byte, maxEncryptedSecretSize+1)))), "challenge encryptedSecret"},
		"a third part":               {seq(ek, pair(one, one, one)), "challenge credential"},
		"something after the secret": {seq(ek, pair(one, one), one), "challenge frame"},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, err := ParseChallenge(c.data)
			expectField(t, err, c.bad)
		})
	}
}

func TestFieldsOfProof(t *testing.T) {
	most, over := make([]byte, der.MaxPublicSize), make([]byte, der.MaxPublicSize+1)
	ak, ek := must(t, fst(testBinding().Marshal()), nil), must(t, fst(testBindingEK().Marshal()), nil)
	document := must(t, fst(testBindingDocument().Marshal()), nil)
	one := []byte{1}
	for name, c := range map[string]struct {
		proof Proof
		bad   string
	}{
		"road AK":          {Proof{Binding: ak, AKPublic: one}, ""},
		"road EK":          {Proof{Binding: ek, AKPublic: one}, ""},
		"no binding":       {Proof{AKPublic: one}, "binding frame"},
		"a document":       {Proof{Binding: document, AKPublic: one}, "proof road"},
		"an EK on road AK": {Proof{Binding: ak, EKPublic: one, AKPublic: one}, "proof ekPublic"},
		"an empty EK":      {Proof{Binding: ek, EKPublic: []byte{}, AKPublic: one}, "proof ekPublic"},
		"the shortest EK":  {Proof{Binding: ek, EKPublic: one, AKPublic: one}, ""},
		"the longest EK":   {Proof{Binding: ek, EKPublic: most, AKPublic: one}, ""},
		"a longer EK":      {Proof{Binding: ek, EKPublic: over, AKPublic: one}, "proof ekPublic"},
		"no AK":            {Proof{Binding: ak}, "proof akPublic"},
		"the longest AK":   {Proof{Binding: ak, AKPublic: most}, ""},
		"a longer AK":      {Proof{Binding: ak, AKPublic: over}, "proof akPublic"},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			data, err := c.proof.Marshal()
			expectField(t, err, c.bad)
			if err == nil {
				_, _, err = ParseProof(data)
				expectField(t, err, "")
			}
		})
	}
	a := octets(one)
	for name, c := range map[string]struct {
		data []byte
		bad  string
	}{
		"no list":                   {octets(ak), "proof frame"},
		"nothing in it":             {seq(), "proof binding"},
		"a binding that is no list": {seq(octets(ak), a), "proof binding"},
		"a bad binding":             {seq(seq(), a), "binding version"},
		"a document":                {seq(document, a), "proof road"},
		"an EK on road AK":          {seq(ak, element(der.Context0, one), a), "proof ekPublic"},
		"an empty EK":               {seq(ek, element(der.Context0, nil), a), "proof ekPublic"},
		"a longer EK":               {seq(ek, element(der.Context0, over), a), "proof ekPublic"},
		"no AK":                     {seq(ek, element(der.Context0, one)), "proof akPublic"},
		"an empty AK":               {seq(ak, octets(nil)), "proof akPublic"},
		"a longer AK":               {seq(ak, octets(over)), "proof akPublic"},
		"something after":           {seq(ak, a, a), "proof frame"},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, _, err := ParseProof(c.data)
			expectField(t, err, c.bad)
		})
	}
}

// A bundle of exactly the largest size is written, one of a byte more is not. What is
// read is checked by TestBundleFrame.
func TestSizesOfWrittenBundles(t *testing.T) {
	for more, want := range map[int]refusal.Check{-1: "", 0: "", 1: der.CheckSize, 2: der.CheckSize} {
		bundle := func(n int) *Bundle {
			return &Bundle{Statements: []Statement{{oid.NodeAttestHello, octets(make([]byte, n))}}}
		}
		data, err := bundle(200 << 10).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		data, err = bundle(der.MaxEvidenceSize + more - (len(data) - 200<<10)).Marshal()
		expectCheck(t, err, want)
		if want == "" && len(data) != der.MaxEvidenceSize+more {
			t.Errorf("made %d bytes", len(data))
		}
	}
}

// A statement starts with a type, in its one encoding.
func TestTypesOfStatements(t *testing.T) {
	a := octets([]byte{1})
	for name, one := range map[string][]byte{
		"no type": seq(a), "nothing": seq(), "no list": octets(a), "an empty type": seq(element(asn1.OBJECT_IDENTIFIER, nil), a),
		"a type that ends early": seq(element(asn1.OBJECT_IDENTIFIER, []byte{0x2a, 0x80}), a),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseBundle(seq(seq(one)))
			expectField(t, err, "bundle statement")
		})
	}
}

// elements are the members of a SEQUENCE.
func elements(t *testing.T, data []byte) [][]byte {
	t.Helper()
	var outer stdasn1.RawValue
	if _, err := stdasn1.Unmarshal(data, &outer); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for rest := outer.Bytes; len(rest) > 0; {
		var one stdasn1.RawValue
		next, err := stdasn1.Unmarshal(rest, &one)
		if err != nil {
			t.Fatal(err)
		}
		out, rest = append(out, one.FullBytes), next
	}
	return out
}
