package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// parsers holds the SDK's parsers, by the name of the structure.
var parsers = map[string]func([]byte) (any, error){
	"AttestationBundle": parser(message.ParseBundle),
	"Hello":             parser(message.ParseHello),
	"Proof":             parser(proof),
	"DocumentHello":     parser(document.ParseHello),
	"DocumentProof":     parser(document.ParseProof),
	"Binding":           parser(message.ParseBinding),
	"Challenge":         parser(message.ParseChallenge),
	"TcgAttestCertify":  parser(statement.ParseTCGAttestCertify),
	"TcgAttestQuote":    parser(statement.ParseTCGAttestQuote),
	"Quote":             parser(statement.ParseQuote),
	"TPMS_ATTEST":       parser(statement.ParseAttestation),
	"TPMT_PUBLIC":       parser(statement.ParsePublic),
	"TPMT_SIGNATURE":    parser(statement.ParseSignature),
	"Certificate":       parser(x509.ParseCertificate),
}

func parser[T any](parse func([]byte) (T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) { return parse(b) }
}

func proof(b []byte) (*message.Proof, error) {
	p, _, err := message.ParseProof(b)
	return p, err
}

// show shows a structure that was recognised.
func (t *tree) show(name string, b []byte) {
	switch name {
	case "Certificate":
		t.showCertificate(b)
	case "CertificationRequest":
		t.showRequest(b)
	case "SubjectPublicKeyInfo":
		t.showKeyInfo(b)
	default:
		v, err := parsers[name](b)
		if err != nil {
			t.refuse(b, err.Error())
			return
		}
		t.parts.take(v, b)
		t.fields(reflect.ValueOf(v).Elem())
		if p, ok := v.(*statement.Public); ok {
			t.showPublic(p)
		}
	}
}

func (t *tree) showPublic(p *statement.Public) {
	t.line("Name, computed", hexOf(p.Name()))
	if key, err := p.Key(); err != nil {
		t.line("key", "none: "+err.Error())
	} else {
		t.showKey(key)
	}
}

// refuse says why a parser refused b, and outlines it if it is DER.
func (t *tree) refuse(b []byte, why string) {
	t.fault("refused: " + why)
	if len(b) > 0 && b[0] == 0x30 {
		t.in("outline", "", func() { t.outline(b, 0, private) })
	}
}

// inside names the structures that are held as bytes in fields of other structures.
var inside = map[string]string{
	"AKPublic": "TPMT_PUBLIC", "Public": "TPMT_PUBLIC", "Attest": "TPMS_ATTEST", "Binding": "Binding",
	"EKPublic": "SubjectPublicKeyInfo", "Certificate": "Certificate",
}

// hidden holds the fields of which only the size is shown. A clear secret is visible to
// anyone who may read the request object, but does not belong in logs.
var hidden = map[string]bool{"Clear": true, "IDObject": true, "EncryptedSecret": true}

// fields writes the exported fields of a structure under the SDK's names. Fields that are
// zero or empty are left out.
func (t *tree) fields(v reflect.Value) {
	switch s := v.Interface().(type) {
	case message.Statement:
		t.showStatement(s)
		return
	case csr.Condition:
		if s.Reason == "AttestationChallenge" {
			defer t.in("Message", sizeOf(len(s.Message))+", a challenge", func() { t.showBase64(s.Message) })
			v.FieldByName("Message").SetZero()
		}
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Name != "Raw" { // Raw repeats the whole structure
			t.field(f.Name, v.Field(i))
		}
	}
	if p, ok := reflect.TypeAssert[statement.PCRSelection](v); ok {
		t.line("PCRs", strings.Trim(fmt.Sprint(p.PCRs()), "[]"))
	}
}

func (t *tree) field(name string, v reflect.Value) {
	_, isRoad := reflect.TypeAssert[message.Road](v)
	if v.IsZero() && !isRoad || v.Kind() == reflect.Slice && v.Len() == 0 {
		return
	}
	if b, ok := reflect.TypeAssert[[]byte](v); ok {
		t.bytes(name, b)
		return
	}
	switch x := v.Interface().(type) {
	case tpm2.TPMAlgID:
		t.line(name, statement.KeyScheme{Alg: x}.String())
	case tpm2.TPMST:
		t.line(name, cmp.Or(map[tpm2.TPMST]string{0x8017: "Certify", 0x8018: "Quote"}[x], "another")+fmt.Sprintf(" (0x%04x)", uint16(x)))
	case tpm2.TPMECCCurve:
		t.line(name, cmp.Or(map[tpm2.TPMECCCurve]string{3: "P-256", 4: "P-384", 5: "P-521"}[x], fmt.Sprintf("0x%04x", uint16(x))))
	case time.Time:
		t.line(name, x.UTC().Format(time.RFC3339))
	case statement.Attributes:
		t.line(name, fmt.Sprintf("%s (0x%08x)", x, uint32(x)))
	case fmt.Stringer:
		t.line(name, x.String())
	default:
		t.plain(name, v)
	}
}

// plain writes a value according to its kind.
func (t *tree) plain(name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		t.field(name, v.Elem())
	case reflect.Struct:
		t.in(name, "", func() { t.fields(v) })
	case reflect.String:
		t.line(name, quoted(v.String()))
	case reflect.Array: // a nonce, a digest
		t.line(name, fmt.Sprintf("%x", v.Interface()))
	case reflect.Slice:
		t.in(name, "", func() {
			for i := range v.Len() {
				t.field(strings.TrimSuffix(name, "s")+fmt.Sprintf(" %d", i+1), v.Index(i))
			}
		})
	case reflect.Map:
		t.line(name, shortened(fmt.Sprintf("%q", v)))
	default:
		text := fmt.Sprint(v.Interface())
		switch name {
		case "IssuedAt", "NotAfter":
			text += " (" + time.Unix(v.Int(), 0).UTC().Format(time.RFC3339) + ")"
		case "Clock":
			text += " ms"
		case "FirmwareVersion":
			text = fmt.Sprintf("%016x", v.Interface())
		}
		t.line(name, text)
	}
}

// bytes writes octets, or the structure that they hold.
func (t *tree) bytes(name string, b []byte) {
	kind := strings.TrimRight(name, " 0123456789")
	structure := inside[kind]
	switch {
	case bytes.HasPrefix(b, []byte(begin)):
		t.in(name, sizeOf(len(b)), func() { t.showPEM(b) })
	case kind == "Signature" && isSignature(b):
		t.in(name, sizeOf(len(b)), func() { t.show("TPMT_SIGNATURE", b) })
	case kind == "Signature":
		t.in(name, sizeOf(len(b)), func() { t.showBareSignature(b) })
	case structure != "":
		t.in(name, sizeOf(len(b)), func() { t.show(structure, b) })
	case hidden[name]:
		t.line(name, sizeOf(len(b))+", not shown")
	default:
		t.line(name, hexOf(b))
	}
}

// showStatement shows one statement of evidence.
func (t *tree) showStatement(s message.Statement) {
	t.line("Type", nameOf(s.Type))
	name := map[oid.OID]string{
		oid.TCGAttestTPMCertify: "TcgAttestCertify", oid.TCGAttestTPMQuote: "TcgAttestQuote", oid.NodeAttestHello: "Hello", oid.NodeAttestProof: "Proof", oid.NodeAttestQuote: "Quote",
		oid.NodeAttestDocumentHello: "DocumentHello", oid.NodeAttestDocumentProof: "DocumentProof",
	}[s.Type]
	if name == "" {
		t.line("Stmt", sizeOf(len(s.Stmt))+", not shown")
		return
	}
	t.in(name, sizeOf(len(s.Stmt)), func() { t.show(name, s.Stmt) })
}

// showBareSignature shows a signature that does not state its own scheme, as in the
// sample in the attestation draft.
func (t *tree) showBareSignature(b []byte) {
	if t.parts.signature == nil {
		t.parts.signature, t.parts.bare = b, true
	}
	t.line("bare signature", hexOf(b))
	t.line("scheme", "not stated: this is no TPMT_SIGNATURE")
}

// Limits of the output. An input of maxInput bytes can hold a million empty elements,
// which nobody reads.
const (
	maxLines  = 20000
	maxFaults = 50
	maxText   = 1100 // runes in one text; the longest provider ID has 1024 bytes
	maxHex    = 68   // bytes in one value; the longest TPM Name has 66
)

// A tree is the output: lines, each indented below the item that it is part of.
type tree struct {
	w      *bufio.Writer
	path   []string // the names of the nodes around the next line
	lines  int
	faults []string // where and why reading stopped, for each fault
	parts  parts
}

func newTree(w io.Writer) *tree { return &tree{w: bufio.NewWriter(w)} }

// line writes a name and a value. It is the only place that writes, so everything is
// escaped.
func (t *tree) line(name, value string) {
	switch t.lines++; {
	case t.lines > maxLines:
		return
	case t.lines == maxLines:
		t.faults = append(t.faults, fmt.Sprintf("more than %d lines: the rest is not shown", maxLines))
		name, value = "!! too long", "the rest is not shown"
	}
	if value != "" {
		name += ": " + value
	}
	_, _ = t.w.WriteString(strings.Repeat("  ", len(t.path)) + refusal.Escape(name) + "\n") // Flush has the error
}

// in writes a line, and below it whatever inside writes.
func (t *tree) in(name, value string, inside func()) {
	t.line(name, value)
	t.path = append(t.path, refusal.Escape(name))
	inside()
	t.path = t.path[:len(t.path)-1]
}

// fault writes why reading stopped here. Faults beyond maxFaults are not recorded: one is
// enough to fail.
func (t *tree) fault(why string) {
	t.line("!! "+why, "")
	if len(t.faults) < maxFaults {
		t.faults = append(t.faults, refusal.Escape(strings.Join(t.path, " > ")+": "+why))
	}
}

// stop writes a fault at a given byte.
func (t *tree) stop(at int, why string) { t.fault("byte " + strconv.Itoa(at) + ": " + why) }

// quoted returns a text from the input in quotes, shortened if it is very long.
func quoted(s string) string { return strconv.Quote(shortened(s)) }

func shortened(s string) string {
	if utf8.RuneCountInString(s) <= maxText {
		return s
	}
	return string([]rune(s)[:maxText/2]) + "… (" + sizeOf(len(s)) + ")"
}

// hexOf returns bytes from the input in hexadecimal, shortened if there are many.
func hexOf(b []byte) string {
	if len(b) <= maxHex {
		return hex.EncodeToString(b)
	}
	return hex.EncodeToString(b[:32]) + "… (" + sizeOf(len(b)) + ")"
}

func sizeOf(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return strconv.Itoa(n) + " bytes"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "NO"
}
