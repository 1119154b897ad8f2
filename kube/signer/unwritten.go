package signer

import (
	"context"
	"reflect"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeattest/nodeattest/csr"
)

// maxUnwritten is how many certificates an unwritten keeps.
const maxUnwritten = 256

// unwritten keeps certificates that were issued and recorded, and could not be written: the
// next attempt writes the same one, if the evidence still shows the same. Otherwise each
// attempt would make another one, and the record would soon have no room for those in use.
type unwritten struct {
	mu   sync.Mutex
	held map[types.UID]kept
}

// kept is a certificate and the facts that it was issued on.
type kept struct {
	ca        *csr.CA
	machine   string
	inventory *csr.Machine
	grant     csr.Grant
	issued    *csr.Issued
}

// keptFor returns the facts on which this CA would issue a certificate for this result.
func keptFor(ca *csr.CA, attested *csr.Attested) kept {
	grant := attested.Grant()
	grant.Record, grant.NotAfter = nil, time.Time{} // which differ each time
	return kept{ca: ca, machine: attested.Machine(), inventory: attested.Checked().Machine(), grant: grant}
}

// again returns the certificate that was issued for the request on the same grounds, having
// it recorded again, or nil.
func (u *unwritten) again(ctx context.Context, object *certificatesv1.CertificateSigningRequest, ca *csr.CA, attested *csr.Attested, now time.Time) (*csr.Issued, error) {
	u.mu.Lock()
	held, there := u.held[object.UID]
	u.mu.Unlock()
	issued := held.issued
	if held.issued = nil; !there || !reflect.DeepEqual(held, keptFor(ca, attested)) || !now.Before(issued.Certificate.NotAfter) {
		return nil, nil
	}
	grant := attested.Grant()
	if !grant.NotAfter.IsZero() && issued.Certificate.NotAfter.After(grant.NotAfter) {
		return nil, nil
	}
	if grant.Record == nil {
		return issued, nil
	}
	return issued, grant.Record(ctx, issued.Record)
}

// keep keeps a certificate until forget is called for its request.
func (u *unwritten) keep(object *certificatesv1.CertificateSigningRequest, ca *csr.CA, attested *csr.Attested, issued *csr.Issued) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held == nil || len(u.held) >= maxUnwritten {
		u.held = map[types.UID]kept{} // requests whose nodes have stopped waiting
	}
	k := keptFor(ca, attested)
	k.issued = issued
	u.held[object.UID] = k
}

func (u *unwritten) forget(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.held, uid)
}
