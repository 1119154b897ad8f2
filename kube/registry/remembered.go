package registry

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Remembered is a reader of what the API server has in its memory, which may be behind what is
// stored and costs it less. What it does not have there is read as it is stored. It is for
// Options.Stale of who comes after another registry.
func Remembered(live client.Reader) client.Reader { return remembered{live} }

type remembered struct{ client.Reader }

func (r remembered) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, o, append(slices.Clip(options), &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})...)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, key, o, options...)
	}
	return err
}
