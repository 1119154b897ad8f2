package csr

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const gkeJSON = `{"zone":"us-central1-a","id":5779862431105934320,"name":"gke-node-1","project_id":117485845609,"project_name":"example.com:project"}`

// gkeParts are the blocks of a request of GKE's nodes.
func gkeParts(t testing.TB) [][]byte {
	t.Helper()
	return [][]byte{
		block(BlockRequest, clientRequest(t, keyP256())),
		block(BlockProposalData, []byte("\xffTCG and so on")),
		block(BlockGKESignature, make([]byte, 256)),
		block(BlockGKEIdentity, []byte(gkeJSON)),
		block(BlockGKECertificate, []byte("\x30\x00")),
	}
}

func TestParseGKE(t *testing.T) {
	parts := gkeParts(t)
	der, _ := pem.Decode(parts[0])
	want := &GKEBundle{
		Request:   der.Bytes,
		Attest:    []byte("\xffTCG and so on"),
		Signature: make([]byte, 256),
		Identity: GKEIdentity{
			Zone: "us-central1-a", ID: 5779862431105934320, Name: "gke-node-1",
			ProjectNumber: 117485845609, ProjectID: "example.com:project",
		},
		IdentityJSON: []byte(gkeJSON),
		Certificate:  []byte("\x30\x00"),
	}
	got, err := ParseGKE(join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	want.Certificate = nil
	got, err = ParseGKE(join(parts[:4]...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("without a certificate: %s", diff)
	}
	if _, err := ParsePKCS10(got.Request); err != nil {
		t.Error(err)
	}
}

func TestParseGKERefuses(t *testing.T) {
	parts := gkeParts(t)
	without := func(i int) []byte {
		kept := append([][]byte{}, parts[:i]...)
		return join(append(kept, parts[i+1:]...)...)
	}
	for name, test := range map[string]struct {
		text []byte
		want Check
	}{
		"no request":           {without(0), CheckBlockOrder},
		"no data":              {without(1), CheckBlockMissing},
		"no signature":         {without(2), CheckBlockMissing},
		"no identity":          {without(3), CheckBlockMissing},
		"request alone":        {parts[0], CheckBlockMissing},
		"data twice":           {join(parts[0], parts[1], parts[1], parts[2], parts[3]), CheckBlockDuplicate},
		"another data last":    {join(join(parts...), block(BlockProposalData, []byte("another"))), CheckBlockDuplicate},
		"identity twice":       {join(join(parts...), parts[3]), CheckBlockDuplicate},
		"signature first":      {join(parts[0], parts[2], parts[1], parts[3]), CheckBlockOrder},
		"certificate first":    {join(parts[0], parts[4], parts[1], parts[2], parts[3]), CheckBlockOrder},
		"identity in one line": {join(parts[0], parts[1], parts[2], bytes.Replace(parts[3], []byte("\n"), []byte("\n"+strings.Repeat("A", 64)), 1)), CheckLineWidth},
		"today's provider":     {join(parts[0], block(BlockProvider, []byte("tpm/v1")), parts[1], parts[2], parts[3]), CheckBlockUnknown},
		"no DER":               {join(block(BlockRequest, []byte{1}), parts[1], parts[2], parts[3]), CheckRequestDER},
		"empty certificate":    {join(join(parts[:4]...), block(BlockGKECertificate, nil)), CheckBlockEmpty},
		"text between":         {join(parts[0], []byte("text\n"), parts[1], parts[2], parts[3]), CheckBlockText},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseGKE(test.text)
			if got != nil {
				t.Error("ParseGKE returns a bundle")
			}
			wantRule(t, name, err, test.want)
		})
	}
	if _, err := Parse(join(parts...)); !errors.Is(err, CheckBlockUnknown) {
		t.Errorf("Parse reads GKE's dialect: %v", err)
	}
}

func TestGKEIdentityIsStrict(t *testing.T) {
	edit := func(old, changed string) string {
		if !strings.Contains(gkeJSON, old) {
			t.Fatalf("%q is not in %s", old, gkeJSON)
		}
		return strings.Replace(gkeJSON, old, changed, 1)
	}
	for name, text := range map[string]string{
		"no JSON":                    "us-central1-a",
		"an array":                   "[" + gkeJSON + "]",
		"null":                       "null",
		"a number":                   "1",
		"empty object":               "{}",
		"two objects":                gkeJSON + gkeJSON,
		"text after":                 gkeJSON + "x",
		"NUL after":                  gkeJSON + "\x00",
		"truncated":                  gkeJSON[:len(gkeJSON)-1],
		"comma after":                edit(`project"}`, `project",}`),
		"comment":                    edit(`{`, `{/**/`),
		"single quotes":              strings.ReplaceAll(gkeJSON, `"`, `'`),
		"member twice":               edit(`{`, `{"zone":"us-central1-a",`),
		"member twice, escaped":      edit(`{`, `{"\u007aone":"europe-west1-b",`),
		"unknown member twice":       edit(`{`, `{"a":1,"a":1,`),
		"inner member twice":         edit(`{`, `{"a":{"b":1,"b":2},`),
		"deep member twice":          edit(`{`, `{"a":[1,{"b":[{"c":1,"c":1}]}],`),
		"member in another case":     edit(`{`, `{"Zone":"europe-west1-b",`),
		"only in another case":       edit(`"zone"`, `"ZONE"`),
		"Kelvin sign for k":          edit(`{`, `{"project_\u0131d":1,"ID":2,`),
		"zone missing":               edit(`"zone":"us-central1-a",`, ""),
		"id missing":                 edit(`"id":5779862431105934320,`, ""),
		"name missing":               edit(`"name":"gke-node-1",`, ""),
		"project_id missing":         edit(`"project_id":117485845609,`, ""),
		"project_name missing":       edit(`,"project_name":"example.com:project"`, ""),
		"zone empty":                 edit(`"us-central1-a"`, `""`),
		"zone null":                  edit(`"us-central1-a"`, `null`),
		"zone a number":              edit(`"us-central1-a"`, `1`),
		"zone an object":             edit(`"us-central1-a"`, `{}`),
		"id zero":                    edit(`5779862431105934320`, `0`),
		"id negative":                edit(`5779862431105934320`, `-1`),
		"id minus zero":              edit(`5779862431105934320`, `-0`),
		"id a fraction":              edit(`5779862431105934320`, `5779862431105934320.0`),
		"id with exponent":           edit(`5779862431105934320`, `5e18`),
		"id over 64 bits":            edit(`5779862431105934320`, `18446744073709551616`),
		"id with a leading zero":     edit(`5779862431105934320`, `05779862431105934320`),
		"id a string":                edit(`5779862431105934320`, `"5779862431105934320"`),
		"id null":                    edit(`5779862431105934320`, `null`),
		"not UTF-8":                  edit(`gke-node-1`, "gke-\xff"),
		"half a surrogate pair":      edit(`gke-node-1`, `gke-\ud800`),
		"replacement character":      edit(`gke-node-1`, "gke-\ufffd"),
		"control character":          edit(`gke-node-1`, "gke\n1"),
		"very deep":                  edit(`{`, `{"a":`+strings.Repeat("[", 1500)+strings.Repeat("]", 1500)+`,"a":1,`),
		"too long":                   gkeJSON + strings.Repeat(" ", maxGKEIdentity),
		"byte order mark":            "\ufeff" + gkeJSON,
		"members under an empty key": edit(`{`, `{"":1,"":2,`),
	} {
		t.Run(name, func(t *testing.T) {
			_, v := parseGKEIdentity([]byte(text))
			if v == nil {
				t.Errorf("is accepted: %s", text)
				return
			}
			wantRule(t, name, v, CheckGKEIdentity)
		})
	}
}

func TestGKEIdentityToleratesMore(t *testing.T) {
	for _, text := range []string{
		gkeJSON,
		" {\n" + gkeJSON[1:] + "\n",
		`{"a":null,"b":[1,[],{}],"c":{"zone":"x","d":{"zone":"y"}},"e":true,"f":[{"g":1},{"g":1}],` + gkeJSON[1:],
		strings.Replace(gkeJSON, "5779862431105934320", "18446744073709551615", 1),
	} {
		id, v := parseGKEIdentity([]byte(text))
		if v != nil {
			t.Errorf("%s: %v", text, v)
		}
		if id.Zone != "us-central1-a" || id.ProjectID != "example.com:project" {
			t.Errorf("%s: %+v", text, id)
		}
	}
}

func FuzzParseGKE(f *testing.F) {
	parts := gkeParts(f)
	f.Add(join(parts...))
	f.Add(join(parts[:4]...))
	f.Add(join(parts[:1]...))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := ParseGKE(text)
		if err != nil {
			var v *Error
			if !errors.As(err, &v) || b != nil {
				t.Fatalf("bundle %v, error %v", b, err)
			}
			return
		}
		back := join(block(BlockRequest, b.Request), block(BlockProposalData, b.Attest),
			block(BlockGKESignature, b.Signature), block(BlockGKEIdentity, b.IdentityJSON))
		if b.Certificate != nil {
			back = join(back, block(BlockGKECertificate, b.Certificate))
		}
		if !bytes.Equal(back, text) {
			t.Fatalf("%q encodes as %q", text, back)
		}
	})
}

// FuzzGKEIdentity holds the reader against encoding/json, which accepts more, and must
// mean the same.
func FuzzGKEIdentity(f *testing.F) {
	f.Add([]byte(gkeJSON))
	f.Add([]byte(`{"a":[1,{"b":[{"c":1}]}],` + gkeJSON[1:]))
	f.Add([]byte(`{"a":[1,{"b":[{"c":1,"c":2}]}],"Id":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		id, v := parseGKEIdentity(text)
		if v != nil {
			return
		}
		var want struct {
			Zone          string `json:"zone"`
			ID            uint64 `json:"id"`
			Name          string `json:"name"`
			ProjectNumber uint64 `json:"project_id"`
			ProjectID     string `json:"project_name"`
		}
		if err := json.Unmarshal(text, &want); err != nil || GKEIdentity(want) != id {
			t.Fatalf("%q reads as %+v, encoding/json: %+v, %v", text, id, want, err)
		}
	})
}
