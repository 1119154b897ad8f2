package document_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	mathrand "math/rand/v2"
	"testing"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/costsearch"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// A search repeats and lengthens the elements of the statements and of the PKCS#10 request. No message
// that it tries takes much more memory or counted work than a good one of its size, although memory grows
// with the number of elements. The cost of a document is its platform's to limit.
func TestCostliestMessages(t *testing.T) {
	for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
		t.Run(stage.String(), func(t *testing.T) {
			j := newJoin(t)
			v := j.verifier(t)
			spec := testkit.Must(j.attester(t).Hello(t.Context(), j.subject))
			filed, verify := j.object(spec), func(r *csr.Request) error { _, err := v.Challenge(t.Context(), r); return err }
			if stage == attest.StageAnswer {
				filed, verify = j.answer(t, v), func(r *csr.Request) error { _, err := v.Verify(t.Context(), r); return err }
			}
			s := &costsearch.Search[messageParts]{Start: []messageParts{readParts(t, filed)}, Change: changed,
				Write: func(p messageParts) []byte { return p.file(j, filed) },
				Read: func(data []byte) (work int, err error) {
					request := *filed
					request.Spec.Request = data
					j.platform.budget = nil
					err = verify(&request)
					_, _, work = j.platform.budget.Spent()
					return max(work, len(data)), err
				},
				Good: func(int, int) []byte { return readParts(t, filed).file(j, filed) }} // there is no larger one
			s.Run(t, 60, [...]float64{costsearch.Memory: 8, costsearch.Counted: 3})
		})
	}
}

// messageParts are the parts of a message that the search changes.
type messageParts struct{ statements, request *costsearch.Tree }

func readParts(t *testing.T, r *csr.Request) messageParts {
	t.Helper()
	bundle := testkit.Must(csr.Parse(r.Spec.Request))
	evidence := testkit.Must(message.ParseBundle(bundle.Data))
	p := messageParts{&costsearch.Tree{Tag: asn1.SEQUENCE}, costsearch.Trees(bundle.Request)[0].Members[0]}
	for _, s := range evidence.Statements {
		p.statements.Members = append(p.statements.Members, costsearch.Trees(s.Stmt)...)
	}
	return p
}

func changed(r *mathrand.Rand, p messageParts) messageParts {
	p = messageParts{p.statements.Clone(), p.request.Clone()}
	for range 1 + r.IntN(3) {
		if r.IntN(2) == 0 {
			p.statements.Mutate(r, 16<<10)
		} else {
			p.request.Mutate(r, 16<<10)
		}
	}
	return p
}

// file puts a message together, its PKCS#10 request signed with the node's key. It is nil for what
// cannot be written.
func (p messageParts) file(j *join, like *csr.Request) []byte {
	bundle, err := csr.Parse(like.Spec.Request)
	if err != nil {
		return nil
	}
	evidence, err := message.ParseBundle(bundle.Data)
	if err != nil {
		return nil
	}
	for n := range min(len(evidence.Statements), len(p.statements.Members)) {
		evidence.Statements[n].Stmt = p.statements.Members[n].Marshal()
	}
	info := p.request.Marshal()
	digest := sha256.Sum256(info)
	signature, err := ecdsa.SignASN1(rand.Reader, j.key, digest[:])
	if err != nil {
		return nil
	}
	bundle.Request = tpmlab.Seq(info, []byte(tpmlab.ECDSASHA256), tpmlab.Element(asn1.BIT_STRING, append([]byte{0}, signature...)))
	if bundle.Data, err = evidence.Marshal(); err != nil {
		return nil
	}
	request, err := bundle.Marshal()
	if err != nil {
		return nil
	}
	return request
}
