package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"

	"github.com/nodeattest/nodeattest/csr"
)

// maxDepth bounds the nesting of JSON and DER.
const maxDepth = 32

// requestMember finds spec.request in JSON that ends too early.
var requestMember = regexp.MustCompile(`"request":\s*"([A-Za-z0-9+/=]+)`)

// showObject shows a CertificateSigningRequest object as csr.ParseRequest reads it, with
// the request, the challenge and the certificate in it. An object of another kind, a
// Secret for example, stays dark.
func (t *tree) showObject(text []byte) {
	d := json.NewDecoder(bytes.NewReader(text))
	err := checkJSON(d, 0)
	if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("more than one JSON value")
	}
	if err != nil {
		t.stop(int(d.InputOffset()), err.Error())
	}
	request, err := csr.ParseRequest(text)
	if err != nil {
		t.fault("refused: " + err.Error())
		if m := requestMember.FindSubmatch(text); m != nil {
			t.in("Request", "", func() { t.showBase64(string(m[1])) })
		}
		return
	}
	if len(request.Spec.Request) == 0 {
		t.fault("no spec.request: this is no CertificateSigningRequest")
	}
	certificate := request.Status.Certificate
	request.Status.Certificate = nil
	t.fields(reflect.ValueOf(request).Elem())
	if len(certificate) > 0 {
		evidence := t.parts // which the issued certificate is no part of
		t.in("Certificate", sizeOf(len(certificate)), func() { t.showPEM(certificate) })
		t.parts = evidence
	}
}

// checkJSON refuses what csr.ParseRequest lets through: a member that stands twice, and
// deep nesting.
func checkJSON(d *json.Decoder, depth int) error {
	token, err := nextToken(d)
	open, ok := token.(json.Delim)
	if err != nil || !ok {
		return err
	}
	if depth >= maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			name, err := nextToken(d)
			if err != nil {
				return err
			}
			key, _ := name.(string)
			if seen[key] {
				return fmt.Errorf("member %s twice", quoted(key))
			}
			seen[key] = true
		}
		if err := checkJSON(d, depth+1); err != nil {
			return err
		}
	}
	_, err = nextToken(d)
	return err
}

func nextToken(d *json.Decoder) (json.Token, error) {
	token, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return token, err
}
