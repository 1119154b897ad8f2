package csr

import (
	"encoding/pem"
	"sync"
)

// Parsed is a request whose content is read once, by whoever needs it first: however many
// policies, providers and verifiers look at one request, its PEM and its PKCS#10 request
// are parsed one time. [Request.Parsed] makes it. It is safe for use by many goroutines;
// nobody may change the request while it is in use.
type Parsed struct {
	request *Request
	given   *Bundle // of Request.ParsedAs

	bundleOnce sync.Once
	bundle     *Bundle
	bundleErr  error

	pkcs10Once sync.Once
	pkcs10     *PKCS10
	pkcs10Err  error
}

// Parsed is the request, to be read once. Nothing is read here: what does not parse is
// for [Policy.Check] to report, after it has found out that the request is not somebody
// else's.
func (r *Request) Parsed() *Parsed { return &Parsed{request: r} }

// ParsedAs is Parsed for a provider that reads a dialect: the bundle says in our own form
// what the provider has read in Spec.Request, the same PKCS#10 request first of all, and
// Spec.Request is read no more.
func (r *Request) ParsedAs(bundle *Bundle) *Parsed { return &Parsed{request: r, given: bundle} }

// Request is the object that was filed; nil where there is none.
func (p *Parsed) Request() *Request {
	if p == nil {
		return nil
	}
	return p.request
}

// Bundle is what [Parse] makes of Spec.Request, with its errors.
func (p *Parsed) Bundle() (*Bundle, error) {
	if p.Request() == nil {
		return nil, noRequest()
	}
	p.bundleOnce.Do(func() {
		if p.bundle = p.given; p.bundle == nil {
			p.bundle, p.bundleErr = Parse(p.request.Spec.Request)
		}
	})
	return p.bundle, p.bundleErr
}

// PKCS10 is what [ParsePKCS10] makes of the request in the bundle, with its errors and
// those of [Parsed.Bundle].
func (p *Parsed) PKCS10() (*PKCS10, error) {
	bundle, err := p.Bundle()
	if err != nil {
		return nil, err
	}
	p.pkcs10Once.Do(func() { p.pkcs10, p.pkcs10Err = ParsePKCS10(bundle.Request) })
	return p.pkcs10, p.pkcs10Err
}

// der is the PKCS#10 request that kube-apiserver reads in Spec.Request: the first block,
// whatever stands around it. It is nil where there is none.
func (p *Parsed) der() []byte {
	if p.given == nil {
		if bundle, err := p.Bundle(); err == nil {
			return bundle.Request
		}
	}
	block, _ := pem.Decode(p.request.Spec.Request)
	if block == nil {
		return nil
	}
	return block.Bytes
}

func noRequest() error { return Errors{{Check: CheckNotChecked, Got: "no request"}} }
