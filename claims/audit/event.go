package audit

import (
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// Event is the event of a request that the API server answered with a status of 200 to 299.
// Of lists it has at most 16 elements: the first 15 and the last. Texts of more than 1024 bytes are cut.
type Event struct {
	// AuditID is the ID of the request. All its events have the same.
	AuditID string
	// Time is when the request was answered, by the API server's clock.
	Time time.Time
	// Username is the authenticated user, and CredentialID the credential that it was
	// authenticated with; "" if the API server named none, or more than one.
	Username, CredentialID string
	// Impersonated is the user that the request was made as; "" if the user impersonated none.
	Impersonated string
	// SourceIPs are the addresses that the request came from, the API server's own client last. The
	// client chooses the others.
	SourceIPs []string
	// UserAgent is the client's name of itself.
	UserAgent string
	// Verb is that of the request, and Resource its resource with the subresource, such as
	// "serviceaccounts/token".
	Verb, Resource string
	// Namespace and Name identify the object. A name that the API server generated is not
	// in the event of the creation.
	Namespace, Name string
}

const (
	maxText  = 1024 // bytes of a text
	maxTexts = 16   // elements of a list
	maxItems = 1000 // events of a list

	stageComplete = "ResponseComplete"
	stagePanic    = "Panic"
	tokenResource = "serviceaccounts/token"

	extraCredentialID  = "authentication.kubernetes.io/credential-id"
	annotationIssuedID = "authentication.kubernetes.io/issued-credential-id"
)

// event is an Event with the members that say which kind of event it is.
type event struct {
	Event
	kind, apiVersion string
	stage            string
	subresource, uid string
	code             int64
	issued           string // the credential ID of the annotation
	items            []event
}

// errEvent: strict JSON, and no event of audit.k8s.io/v1.
var errEvent = errors.New("not an event of audit.k8s.io/v1")

// parse reads a line: an event or an EventList.
func parse(line []byte) ([]event, error) {
	var e event
	r := strictjson.NewReader(line)
	if err := e.read(r, true); err != nil {
		return nil, err
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	events := e.items
	switch {
	case e.apiVersion != "audit.k8s.io/v1":
		return nil, errEvent
	case e.kind == "Event" && events == nil:
		events = []event{e}
	case e.kind != "EventList" || e.stage != "":
		return nil, errEvent
	}
	for i := range events {
		if events[i].stage == "" || events[i].AuditID == "" || events[i].Time.IsZero() {
			return nil, errEvent
		}
	}
	return events, nil
}

// read reads an event, or the list that a line may be.
func (e *event) read(r *strictjson.Reader, line bool) error {
	return r.Object(func(name []byte) (err error) {
		switch string(name) {
		case "kind":
			e.kind, err = r.String()
		case "apiVersion":
			e.apiVersion, err = r.String()
		case "stage":
			e.stage, err = r.String()
		case "auditID":
			e.AuditID, err = text(r)
		case "verb":
			e.Verb, err = text(r)
		case "userAgent":
			e.UserAgent, err = text(r)
		case "sourceIPs":
			e.SourceIPs, err = texts(r)
		case "user":
			err = e.readUser(r)
		case "impersonatedUser":
			err = strictjson.Fields{"username": into(&e.Impersonated)}.Read(r)
		case "objectRef":
			err = e.readObject(r)
		case "responseStatus":
			err = strictjson.Fields{"code": func(r *strictjson.Reader) (err error) { e.code, err = r.Int64(); return err }}.Read(r)
		case "annotations":
			err = strictjson.Fields{annotationIssuedID: into(&e.issued)}.Read(r)
		case "stageTimestamp":
			e.Time, err = timestamp(r)
		case "items":
			if !line {
				return errEvent
			}
			e.items = []event{}
			err = r.Array(func() error {
				if len(e.items) == maxItems {
					return errEvent
				}
				e.items = append(e.items, event{})
				return e.items[len(e.items)-1].read(r, false)
			})
		case "requestObject", "responseObject": // the client's text: it must not make the event unreadable
			err = r.SkipLoosely()
		default:
			err = r.Skip()
		}
		return err
	})
}

func (e *event) readUser(r *strictjson.Reader) error {
	return strictjson.Fields{
		"username": into(&e.Username),
		"extra": strictjson.Fields{extraCredentialID: func(r *strictjson.Reader) error {
			ids, err := texts(r)
			if len(ids) == 1 {
				e.CredentialID = ids[0]
			}
			return err
		}}.Read,
	}.Read(r)
}

func (e *event) readObject(r *strictjson.Reader) error {
	err := strictjson.Fields{
		"resource": into(&e.Resource), "subresource": into(&e.subresource),
		"namespace": into(&e.Namespace), "name": into(&e.Name), "uid": into(&e.uid),
	}.Read(r)
	if e.subresource != "" {
		e.Resource += "/" + e.subresource
	}
	return err
}

// answered reports whether this is the event of a request that was granted and answered.
func (e *event) answered() bool {
	return e.stage == stageComplete && e.code >= 200 && e.code <= 299
}

// issues reports whether this is the event of a TokenRequest that was granted.
func (e *event) issues() bool {
	return e.answered() && e.Verb == "create" && e.Resource == tokenResource
}

// widen moves the times of the earliest and the latest event apart to include that of this one.
func (e *event) widen(first, last *time.Time) {
	if first.IsZero() || e.Time.Before(*first) {
		*first = e.Time
	}
	if e.Time.After(*last) {
		*last = e.Time
	}
}

// text reads a string and keeps its beginning.
func text(r *strictjson.Reader) (string, error) {
	b, err := r.Text()
	return string(b[:min(len(b), maxText)]), err
}

func into(s *string) func(*strictjson.Reader) error {
	return func(r *strictjson.Reader) (err error) {
		*s, err = text(r)
		return err
	}
}

// texts reads strings and keeps the first of them, and the last, which tells most of addresses.
func texts(r *strictjson.Reader) ([]string, error) {
	var list []string
	err := r.Array(func() error {
		s, err := text(r)
		if len(list) == maxTexts {
			list = list[:maxTexts-1]
		}
		list = append(list, s)
		return err
	})
	return list, err
}

func timestamp(r *strictjson.Reader) (time.Time, error) {
	s, err := text(r)
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339, s)
}
