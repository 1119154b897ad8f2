package bootstraptoken

import "time"

// maxSweepWait is the longest time after which [Sweep] wants to be called again while any
// token can expire: one hour. That way, a clock that was set or a machine that slept is
// noticed.
const maxSweepWait = time.Hour

// Sweeping is the result of [Sweep].
type Sweeping struct {
	// Delete lists the Secrets to delete now, in the order in which they were given. Delete each
	// with the preconditions UID and ResourceVersion, if they are not empty, so that a Secret
	// that has meanwhile been recreated under its name, or given more time, stays.
	Delete []*Object
	// Refused lists the token Secrets whose expiration cannot be read.
	// They stay, and need a person's attention.
	Refused []Refusal
	// Next is when to look again: when the first of the remaining tokens expires, but at most
	// an hour from now. It is the zero time if none ever expires: then a change to the
	// Secrets is the next reason to look.
	Next time.Time
}

// Sweep says which token Secrets have expired at now, and when to look again. objects may be all
// Secrets of the cluster: other types and namespaces than [SecretType] and [Namespace], and
// Secrets that are being deleted, are skipped. A Secret needs nothing more than a readable
// expiration: an expired one with a wrong name or bad groups goes too, as with Kubernetes' token
// cleaner (pkg/controller/bootstrap/tokencleaner.go, evalSecret).
//
// Sweep differs from it in two ways. A Secret whose expiration is not an RFC 3339 time is
// reported in Refused with "bootstrap-token-expiration", whereas the token cleaner silently
// deletes it. And a Secret that could not be deleted is named again by the next Sweep, so a
// caller whose deletions fail should call again soon; the token cleaner waits for the Secret to
// change.
//
// The error is [refusal.CheckConfig] if now is the zero time. A clock that is ahead deletes
// tokens early: nothing here can detect that.
func Sweep(objects []*Object, now time.Time) (*Sweeping, error) {
	if now.IsZero() {
		return nil, errClock()
	}
	found := new(Sweeping)
	for _, o := range objects {
		if !isTokenSecret(o) || o.Deleted != nil {
			continue
		}
		end, err := decodeExpiration(o.Data.Reveal())
		switch {
		case err != nil:
			found.Refused = append(found.Refused, Refusal{Name: o.Name, Err: err})
		case end.IsZero():
		case !now.Before(end):
			found.Delete = append(found.Delete, o)
		case found.Next.IsZero() || end.Before(found.Next):
			found.Next = end
		}
	}
	if most := now.Add(maxSweepWait); found.Next.After(most) {
		found.Next = most
	}
	return found, nil
}

// List decodes the token Secrets among objects, in order, for a view. objects may be all Secrets
// of the cluster: other types and namespaces than [SecretType] and [Namespace] are skipped.
// Secrets that [ParseSecretUnchecked] refuses are in refused, with the reason. An expired token
// is listed like any other. (kubeadm token list shows tokens that kube-apiserver refuses, and
// usages that no component knows.)
func List(objects []*Object) (secrets []*Secret, refused []Refusal) {
	for _, o := range objects {
		if !isTokenSecret(o) {
			continue
		}
		s, err := ParseSecretUnchecked(o)
		if err != nil {
			refused = append(refused, Refusal{Name: o.Name, Err: err})
			continue
		}
		secrets = append(secrets, s)
	}
	return secrets, refused
}

func isTokenSecret(o *Object) bool {
	return o != nil && o.Namespace == Namespace && o.Type == SecretType
}

// Refusal is an object that was refused, and why.
type Refusal struct {
	// Name is the object's name.
	Name string
	// Err is an [*Error].
	Err error
}
