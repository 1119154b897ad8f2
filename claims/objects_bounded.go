package claims

import (
	"context"
	"time"
)

// CheckStaleAnswer: the answer of an [Objects] is older than was agreed to, does not say
// how old it is, or is from a time that has not come yet. It comes with [ErrRetry].
const CheckStaleAnswer Check = "stale-answer"

// boundedObjects is an Objects whose answers are no older than was agreed to.
type boundedObjects struct {
	from Objects
	most time.Duration
	now  func() time.Time
}

func (b boundedObjects) ServiceAccount(ctx context.Context, namespace, name string) (*Object, error) {
	object, err := b.from.ServiceAccount(ctx, namespace, name)
	return fresh(b, object, err)
}

func (b boundedObjects) Pod(ctx context.Context, namespace, name string) (*Pod, error) {
	pod, err := b.from.Pod(ctx, namespace, name)
	return fresh(b, pod, err)
}

func (b boundedObjects) Secret(ctx context.Context, namespace, name string) (*Object, error) {
	object, err := b.from.Secret(ctx, namespace, name)
	return fresh(b, object, err)
}

func (b boundedObjects) Node(ctx context.Context, name string) (*Node, error) {
	node, err := b.from.Node(ctx, name)
	return fresh(b, node, err)
}

// holder is what has an Object in it.
type holder[T any] interface {
	*T
	object() *Object
}

// fresh passes an answer on, or an error where it is too old.
func fresh[T any, P holder[T]](b boundedObjects, answer P, err error) (P, error) {
	if err != nil || answer == nil {
		return nil, err
	}
	if err := b.checkAge(answer.object()); err != nil {
		return nil, err
	}
	return answer, nil
}

func (b boundedObjects) checkAge(object *Object) error {
	if object.AsOf.IsZero() {
		if _, stale := b.from.(StaleObjects); stale {
			return &Error{Check: CheckStaleAnswer, Got: "an answer without its age", Want: "AsOf from a StaleObjects", Err: ErrRetry}
		}
		return nil
	}
	if age := b.now().Sub(object.AsOf); age < 0 || age > b.most {
		return &Error{Check: CheckStaleAnswer, Got: "an answer that is " + age.String() + " old", Want: "0s to " + b.most.String(), Err: ErrRetry}
	}
	return nil
}
