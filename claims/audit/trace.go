package audit

import (
	"context"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// Chain is the way from a credential to the one that it goes back to.
type Chain struct {
	// Links are the credentials, at least one and at most 32. The first is the one that was asked
	// about. Each other one is the credential with which the one before was requested.
	Links []Link
	// Logs is the extent of the logs.
	Logs Coverage
}

// Link is one credential of a chain.
type Link struct {
	// CredentialID is the credential: "JTI=" and the ID of a token, or "X509SHA256=" and 64
	// lower-case hexadecimal digits.
	CredentialID string
	// Issued are the TokenRequests that issued the token. There is one, or none if the logs do
	// not have its event or the token comes from another issuer. Of a log that is forged
	// there may be more: at most 4 are stored. An event that is in the logs twice is stored once.
	Issued []Event
	// Uses are the requests that were made with the credential.
	Uses Uses
}

// Uses are the requests that the API server authenticated by one credential. Of users, addresses and
// agents the first 16 are stored, and of each the first 1024 bytes.
type Uses struct {
	// Requests is how many requests were answered, with any status. A request that is in the logs
	// twice counts twice; one that is still running, such as a watch, is not counted.
	Requests int64
	// First and Last are the times of the earliest and the latest event, whether or not its
	// request was answered; zero without any.
	First, Last time.Time
	// Users, SourceIPs and UserAgents are from all the events, in the order of the log. Of an event's
	// addresses the last, which the client does not choose, comes first.
	Users, SourceIPs, UserAgents []string
	// More says that there are users, addresses or agents that were not stored.
	More bool
}

const (
	maxLinks  = 32
	maxIssued = 4

	tokenPrefix       = "JTI="
	certificatePrefix = "X509SHA256="
)

// checkCredentialID: not the ID of a credential.
const checkCredentialID refusal.Check = "credential-id"

// Trace follows a credential ID through the logs: "JTI=" and 1 to 1,000 bytes, or "X509SHA256=" and 64
// lower-case hexadecimal digits. It reads every log once for each link of the chain, and ends at a
// certificate, at a credential that no event or more than one issued, at one that was
// requested without a credential ID, at a loop, or after 32 links. [Chain.Node] says which.
//
// It fails if a log cannot be read, with a malformed credential ID ("credential-id"), and with logs without
// any event ("audit-log").
func Trace(ctx context.Context, credentialID string, logs ...Log) (*Chain, error) {
	if !validCredentialID(credentialID) {
		return nil, &refusal.Error{Check: checkCredentialID, Got: credentialID, Want: tokenPrefix + "<token ID> or " + certificatePrefix + "<64 lower-case hexadecimal digits>"}
	}
	c := new(Chain)
	for next := credentialID; next != ""; next = c.next() {
		link := Link{CredentialID: next}
		has, first := next, len(c.Links) == 0
		if first {
			has = "" // all events are counted
		}
		unread, err := scan(ctx, logs, has, func(e *event) {
			if first {
				c.Logs.add(e)
			}
			link.add(e)
		})
		if err != nil {
			return nil, err
		}
		if first {
			c.Logs.Unread = unread
		}
		c.Links = append(c.Links, link)
		if c.Logs.Events == 0 {
			return nil, &refusal.Error{Check: checkLog, Got: "no events", Want: "events of audit.k8s.io/v1, one on each line"}
		}
	}
	return c, nil
}

func validCredentialID(id string) bool {
	if token, ok := strings.CutPrefix(id, tokenPrefix); ok {
		return token != "" && len(token) <= 1000
	}
	digest, _ := hex.DecodeString(strings.TrimPrefix(id, certificatePrefix)) // of other texts, that of their beginning
	return id == certificatePrefix+hex.EncodeToString(digest) && len(digest) == 32
}

// next is the credential with which the last one was requested; "" if the chain ends there.
func (c *Chain) next() string {
	requester := c.requester()
	if requester == nil || len(c.Links) == maxLinks || c.has(requester.CredentialID) || !validCredentialID(requester.CredentialID) {
		return ""
	}
	return requester.CredentialID
}

// requester is the event of the request for the last credential, if there is one such event.
func (c *Chain) requester() *Event {
	if last := &c.Links[len(c.Links)-1]; len(last.Issued) == 1 {
		return &last.Issued[0]
	}
	return nil
}

func (c *Chain) has(credentialID string) bool {
	return slices.ContainsFunc(c.Links, func(l Link) bool { return l.CredentialID == credentialID })
}

// add stores an event that issued or used the credential.
func (l *Link) add(e *event) {
	if e.issued == l.CredentialID && e.issues() && len(l.Issued) < maxIssued &&
		!slices.ContainsFunc(l.Issued, func(other Event) bool { return reflect.DeepEqual(other, e.Event) }) {
		l.Issued = append(l.Issued, e.Event)
	}
	if e.CredentialID == l.CredentialID {
		l.Uses.add(e)
	}
}

// add counts an event.
func (u *Uses) add(e *event) {
	e.widen(&u.First, &u.Last)
	if e.stage == stageComplete || e.stage == stagePanic {
		u.Requests++
	}
	u.keep(&u.Users, e.Username)
	u.keep(&u.UserAgents, e.UserAgent)
	u.More = u.More || len(e.SourceIPs) == maxTexts // there may have been more
	if n := len(e.SourceIPs); n > 0 {
		u.keep(&u.SourceIPs, e.SourceIPs[n-1])
	}
	for _, address := range e.SourceIPs {
		u.keep(&u.SourceIPs, address)
	}
}

// keep stores a text once.
func (u *Uses) keep(list *[]string, s string) {
	switch {
	case s == "" || slices.Contains(*list, s):
	case len(*list) == maxTexts:
		u.More = true
	default:
		*list = append(*list, s)
	}
}

// Changes returns the requests that changed or made the object with a UID, such as the certificate
// request of a record's RequestUID, as far as their events name the UID: of updates they do, of
// creations and patches not. It reads the logs once, and stores the first 16. It fails if a
// log cannot be read, without logs ("audit-log"), and without a UID.
func Changes(ctx context.Context, uid string, logs ...Log) ([]Event, error) {
	if uid == "" {
		return nil, refusal.Config("uid", "", "the UID of an object")
	}
	var found []Event
	_, err := scan(ctx, logs, uid, func(e *event) {
		if e.uid == uid && e.answered() && len(found) < maxTexts {
			found = append(found, e.Event)
		}
	})
	return found, err
}
