package bootstraptoken

import "time"

// MaxSweepWait is the longest time after which [Sweep] wants to be asked again while any
// token can expire: one hour. A clock that is set, or a machine that slept, is noticed so.
const MaxSweepWait = time.Hour

// Sweeping is what [Sweep] found.
type Sweeping struct {
	// Delete are the Secrets to delete now, in the order in which they were given. Delete
	// each under the preconditions UID and ResourceVersion, where they are not empty: a
	// Secret that was made again under its name, or given more time, meanwhile stays.
	Delete []*Object
	// Refused are the token Secrets of which nobody can say whether they have expired.
	// They stay, and want a person's eye.
	Refused []Refusal
	// Next is when to look again: when the first of the remaining tokens expires, but
	// at most MaxSweepWait from now. It is the zero time where none ever expires: then a
	// change of the Secrets is the next reason to look.
	Next time.Time
}

// Sweep says which token Secrets have expired at now, and when to look again. objects may
// be all Secrets of the cluster: those that are not of [SecretType] in [Namespace], and
// those that are being deleted, are passed over. Nothing else is asked of a Secret but a
// readable expiration: an expired one with a wrong name or bad groups goes too, as with
// Kubernetes' token cleaner (pkg/controller/bootstrap/tokencleaner.go, evalSecret).
//
// Two things differ from it. A Secret with an expiration that is not a time of RFC 3339 is
// reported in Refused with [CheckExpiration], where the token cleaner deletes it in
// silence. And what could not be deleted is named again by the next Sweep, so a caller
// whose deletions fail asks again soon; the token cleaner waits for the Secret to change.
//
// The error is [refusal.CheckConfig] if now is the zero time. A clock that runs ahead deletes
// tokens early: nothing here can tell.
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
	if most := now.Add(MaxSweepWait); found.Next.After(most) {
		found.Next = most
	}
	return found, nil
}

// List decodes the token Secrets among objects, in their order, for a view. objects may be
// all Secrets of the cluster: those that are not of [SecretType] in [Namespace] are passed
// over. Those that [ParseSecret] refuses are in refused, with the reason. An expired token is
// listed like another. (kubeadm token list shows tokens that kube-apiserver refuses, and
// usages that no component knows.)
func List(objects []*Object) (secrets []*Secret, refused []Refusal) {
	for _, o := range objects {
		if !isTokenSecret(o) {
			continue
		}
		s, err := ParseSecret(o)
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

// Refusal is an object that was not taken, and why.
type Refusal struct {
	// Name is the object's name.
	Name string
	// Err is an [*Error].
	Err error
}
