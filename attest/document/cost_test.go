package document_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	mathrand "math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// Of the messages that a search tries, which repeats and lengthens what is in the statements and
// in the PKCS#10 request, none takes much more memory than a good one, and its own bytes. SEARCH
// sets how many are tried. What a document costs is its platform's to bound.
func TestCostliestMessages(t *testing.T) {
	turns := 60
	if n, err := strconv.Atoi(os.Getenv("SEARCH")); err == nil {
		turns = n
	}
	for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
		t.Run(stage.String(), func(t *testing.T) {
			j := newJoin(t)
			v := j.verifier(t)
			spec, err := j.attester(t).Hello(t.Context(), j.subject)
			if err != nil {
				t.Fatal(err)
			}
			filed, verify := j.object(spec), func(r *csr.Request) error { _, err := v.Challenge(t.Context(), r); return err }
			if stage == attest.StageAnswer {
				filed, verify = j.answer(t, v), func(r *csr.Request) error { _, err := v.Verify(t.Context(), r); return err }
			}
			taken := func(r *csr.Request) (float64, error) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := verify(r)
				runtime.ReadMemStats(&after)
				return float64(after.TotalAlloc - before.TotalAlloc), err
			}
			good, err := taken(filed)
			if err != nil {
				t.Fatal(err)
			}
			r := mathrand.New(mathrand.NewPCG(1, 0))
			worst, from := 0.0, readParts(t, filed)
			for range turns {
				p := from.changed(r)
				request, ok := p.file(j, filed)
				if !ok {
					continue
				}
				cost, err := taken(request)
				if x := cost / (good + float64(len(request.Spec.Request))); x > worst {
					if worst, from = x, p; x > 3 {
						t.Errorf("%.1f times a good one: %d bytes, %v", x, len(request.Spec.Request), err)
					}
				}
			}
			t.Logf("%.1f times a good one", worst)
		})
	}
}

// messageParts are what is changed in a message.
type messageParts struct{ statements, request *tpmlab.Tree }

func readParts(t *testing.T, r *csr.Request) messageParts {
	t.Helper()
	bundle, err := csr.Parse(r.Spec.Request)
	if err != nil {
		t.Fatal(err)
	}
	evidence, err := message.ParseBundle(bundle.Data)
	if err != nil {
		t.Fatal(err)
	}
	p := messageParts{&tpmlab.Tree{Tag: asn1.SEQUENCE}, tpmlab.Trees(bundle.Request)[0].Members[0]}
	for _, s := range evidence.Statements {
		p.statements.Members = append(p.statements.Members, tpmlab.Trees(s.Stmt)...)
	}
	return p
}

func (p messageParts) changed(r *mathrand.Rand) messageParts {
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

// file puts a message together, its PKCS#10 request signed with the node's key.
func (p messageParts) file(j *join, like *csr.Request) (*csr.Request, bool) {
	bundle, err := csr.Parse(like.Spec.Request)
	if err != nil {
		return nil, false
	}
	evidence, err := message.ParseBundle(bundle.Data)
	if err != nil {
		return nil, false
	}
	for n := range min(len(evidence.Statements), len(p.statements.Members)) {
		evidence.Statements[n].Stmt = p.statements.Members[n].Marshal()
	}
	info := p.request.Marshal()
	digest := sha256.Sum256(info)
	signature, err := ecdsa.SignASN1(rand.Reader, j.key, digest[:])
	if err != nil {
		return nil, false
	}
	bundle.Request = tpmlab.Seq(info, []byte(tpmlab.ECDSASHA256), tpmlab.Element(asn1.BIT_STRING, append([]byte{0}, signature...)))
	if bundle.Data, err = evidence.Marshal(); err != nil {
		return nil, false
	}
	request := *like
	request.Spec.Request, err = bundle.Marshal()
	return &request, err == nil
}
