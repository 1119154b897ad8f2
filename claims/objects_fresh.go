package claims

import (
	"context"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckStaleAnswer: the answer of an [Objects] is older than was agreed to, does not say
// how old it is, or is from a time that has not come yet. It comes with [ErrRetry].
const CheckStaleAnswer Check = "stale-answer"

// FreshObjects passes on the answers of another Objects, and gives an error
// ([CheckStaleAnswer], [ErrRetry]) in place of one that is too old. The validators of this
// package and of apiserver put it in front of what they are given; a [NodeCheck] takes a
// [StaleObjects] only inside one.
type FreshObjects struct {
	// From gives the answers. It is required.
	From Objects
	// MaxStaleness is how old they may be; 0 refuses a [StaleObjects].
	MaxStaleness time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// clock is the one to go by: nil means time.Now.
func clock(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

// Check reports a configuration that cannot be used, with [refusal.CheckConfig]: no From,
// a negative MaxStaleness, or none for a [StaleObjects].
func (f FreshObjects) Check() error {
	if f.From == nil {
		return refusal.Config("Objects", "", "a getter for objects")
	}
	if f.MaxStaleness < 0 {
		return refusal.Config("MaxStaleness", f.MaxStaleness.String(), "0 or more")
	}
	if _, stale := f.From.(StaleObjects); stale && f.MaxStaleness == 0 {
		return refusal.Config("Objects", "whose answers may be old", "a MaxStaleness, or Objects that ask each time")
	}
	return nil
}

// ServiceAccount implements [Objects].
func (f FreshObjects) ServiceAccount(ctx context.Context, namespace, name string) (*Object, error) {
	return fresh(f, func() (*Object, error) { return f.From.ServiceAccount(ctx, namespace, name) })
}

// Pod implements [Objects].
func (f FreshObjects) Pod(ctx context.Context, namespace, name string) (*Pod, error) {
	return fresh(f, func() (*Pod, error) { return f.From.Pod(ctx, namespace, name) })
}

// Secret implements [Objects].
func (f FreshObjects) Secret(ctx context.Context, namespace, name string) (*Object, error) {
	return fresh(f, func() (*Object, error) { return f.From.Secret(ctx, namespace, name) })
}

// Node implements [Objects].
func (f FreshObjects) Node(ctx context.Context, name string) (*Node, error) {
	return fresh(f, func() (*Node, error) { return f.From.Node(ctx, name) })
}

// holder is what has an Object in it.
type holder[T any] interface {
	*T
	object() *Object
}

// fresh passes an answer on, or an error where it is too old.
func fresh[T any, P holder[T]](f FreshObjects, get func() (P, error)) (P, error) {
	if f.From == nil {
		return nil, f.Check()
	}
	answer, err := get()
	if err != nil || answer == nil {
		return nil, err
	}
	object := answer.object()
	if _, stale := f.From.(StaleObjects); stale && object.AsOf.IsZero() {
		return nil, &Error{Check: CheckStaleAnswer, Got: "an answer without its age", Want: "AsOf from a StaleObjects", Err: ErrRetry}
	}
	if err := object.CheckAge(f.MaxStaleness, clock(f.Now)()); err != nil {
		return nil, err
	}
	return answer, nil
}

// CheckAge refuses an answer that is older than most, or from a time after now, with
// [CheckStaleAnswer] and [ErrRetry]. One without AsOf is of this moment.
func (o *Object) CheckAge(most time.Duration, now time.Time) error {
	if o.AsOf.IsZero() {
		return nil
	}
	if age := now.Sub(o.AsOf); age < 0 || age > most {
		return &Error{Check: CheckStaleAnswer, Got: "an answer that is " + age.String() + " old", Want: "0s to " + most.String(), Err: ErrRetry}
	}
	return nil
}
