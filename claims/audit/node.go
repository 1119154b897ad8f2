package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

// The reasons for which a chain does not lead to a node.
const (
	// checkNoEvent: no event says who requested the credential.
	checkNoEvent refusal.Check = "audit-no-event"
	// checkConflict: events contradict each other.
	checkConflict refusal.Check = "audit-conflict"
	// checkLoop: a credential was requested with itself, or with one that it was used to request.
	checkLoop refusal.Check = "audit-loop"
	// checkLength: the chain is longer than 32 links.
	checkLength refusal.Check = "audit-length"
	// checkNoCredential: the API server did not name the requester's credential.
	checkNoCredential refusal.Check = "audit-no-credential"
	// checkNotNode: the chain ends at a credential of an account that is no node.
	checkNotNode refusal.Check = "audit-not-a-node"
)

// maxSkew is how far the clocks of a cluster's API servers may differ.
const maxSkew = time.Minute

const (
	nodeUserPrefix    = "system:node:"
	accountUserPrefix = "system:serviceaccount:"
)

// Node returns the name of the node that authenticated with the certificate at the end of the chain.
// Whether that certificate was issued through attestation, and to which machine, is in the
// record of its credential ID, that of the last link.
//
// It refuses a chain that ends elsewhere: at an administrator's certificate or a token of another issuer
// ("audit-not-a-node"); at a credential that no event issued or used
// ("audit-no-event"); at a requester whose credential the API server did not name, such as a bootstrap
// token ("audit-no-credential"); or at link 32 ("audit-length"). It also refuses logs that contradict
// themselves: two events that issued one token, a token that was used by another account than the one
// that it was issued for, or more than a minute before ("audit-conflict"), and a loop ("audit-loop").
func (c *Chain) Node() (string, error) {
	if c == nil || len(c.Links) == 0 {
		return "", &refusal.Error{Check: checkNoEvent, Want: "a chain that Trace has returned"}
	}
	for i := range c.Links {
		if err := c.Links[i].check(); err != nil {
			return "", err
		}
	}
	last, requester := &c.Links[len(c.Links)-1], c.requester()
	isCertificate := strings.HasPrefix(last.CredentialID, certificatePrefix)
	switch {
	case requester == nil && !isCertificate:
		return "", c.unexplained()
	case requester == nil:
		return last.node()
	case requester.CredentialID == "":
		return "", &refusal.Error{Check: checkNoCredential, Got: last.CredentialID + " requested by " + requester.Username + " at " + at(requester.Time), Want: "an event that names the requester's credential"}
	case c.has(requester.CredentialID):
		return "", &refusal.Error{Check: checkLoop, Got: last.CredentialID + " requested with " + requester.CredentialID, Want: "a credential that is not in the chain"}
	case len(c.Links) == maxLinks:
		return "", &refusal.Error{Check: checkLength, Got: fmt.Sprintf("%d links, the last one requested with %s", maxLinks, requester.CredentialID), Want: "a certificate"}
	}
	return "", notNode(requester.Username + " with " + requester.CredentialID)
}

// check refuses what cannot have happened.
func (l *Link) check() error {
	conflict := func(got, want string) error {
		return &refusal.Error{Check: checkConflict, Got: got, Want: want + ": the log is forged, or mixes those of two clusters"}
	}
	if strings.HasPrefix(l.CredentialID, certificatePrefix) {
		switch {
		case len(l.Issued) > 0:
			return conflict("a TokenRequest that issued "+l.CredentialID, "one that issued a token")
		case len(l.Uses.Users) > 1:
			return conflict(l.CredentialID+" used by "+refusal.Quotes(l.Uses.Users), "one user")
		}
		return nil
	}
	switch {
	case len(l.Issued) == 0:
		return nil
	case len(l.Issued) > 1:
		a, b := &l.Issued[0], &l.Issued[1]
		return conflict(l.CredentialID+" issued to "+a.Username+" (audit ID "+a.AuditID+") and "+b.Username+" (audit ID "+b.AuditID+")", "one request")
	}
	by, used := l.Issued[0], l.Uses
	account := accountUserPrefix + by.Namespace + ":" + by.Name
	if n := slices.IndexFunc(used.Users, func(user string) bool { return user != account }); n >= 0 {
		return conflict(l.CredentialID+" used by "+used.Users[n], account+", for which it was issued")
	}
	if !used.First.IsZero() && used.First.Before(by.Time.Add(-maxSkew)) {
		return conflict(l.CredentialID+" used at "+at(used.First), "no use before it was issued at "+at(by.Time))
	}
	return nil
}

// unexplained is the error for a token at the end that no event issued.
func (c *Chain) unexplained() error {
	last := &c.Links[len(c.Links)-1]
	for _, user := range last.Uses.Users {
		if !strings.HasPrefix(user, accountUserPrefix) {
			return notNode(user + " with " + last.CredentialID)
		}
	}
	got := "no TokenRequest that issued " + last.CredentialID
	if !last.Uses.First.IsZero() {
		got += ", first used at " + at(last.Uses.First)
	}
	return &refusal.Error{Check: checkNoEvent, Got: got, Want: "its event in the logs, which have " + c.Logs.String()}
}

// node is the node that uses a certificate.
func (l *Link) node() (string, error) {
	if len(l.Uses.Users) == 0 {
		return "", &refusal.Error{Check: checkNoEvent, Got: "no request with " + l.CredentialID, Want: "an event that names its user"}
	}
	name, ok := strings.CutPrefix(l.Uses.Users[0], nodeUserPrefix)
	if !ok || !names.ValidNode(name) {
		return "", notNode(l.Uses.Users[0] + " with " + l.CredentialID)
	}
	return name, nil
}

func notNode(got string) error {
	return &refusal.Error{Check: checkNotNode, Got: got, Want: nodeUserPrefix + "<name> with a certificate"}
}

// String returns the counts and times in one line.
func (c Coverage) String() string {
	s := fmt.Sprintf("%d events from %s to %s", c.Events, at(c.First), at(c.Last))
	if c.Unread > 0 {
		s += fmt.Sprintf("; lines that cannot be read: %d", c.Unread)
	}
	if c.Unnamed > 0 {
		s += fmt.Sprintf("; TokenRequests that name no token, as before Kubernetes 1.30: %d", c.Unnamed)
	}
	return s
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }
