package main

import (
	"cmp"
	"errors"
	"reflect"
	"regexp"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// maxDepth bounds the nesting of DER.
const maxDepth = 32

// requestMember finds spec.request in JSON that ends too early.
var requestMember = regexp.MustCompile(`"request":\s*"([A-Za-z0-9+/=]+)`)

// showObject shows a CertificateSigningRequest object as csr.ParseRequest reads it, with
// the request, the challenge and the certificate in it. An object of another kind, a
// Secret for example, stays dark. What csr.ParseRequest lets through is refused here: a
// member that stands twice, and deep nesting.
func (t *tree) showObject(text []byte) {
	r := strictjson.NewReader(text)
	var fault *strictjson.Error
	if errors.As(cmp.Or(r.Skip(), r.End()), &fault) {
		t.fault("refused: " + fault.Error())
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
