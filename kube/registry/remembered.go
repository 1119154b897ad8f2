package registry

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Remembered returns a reader of the API server's memory, which may lag behind its storage and is
// cheaper to read. An object that is not in memory is read from storage. It
// is meant for the Options.Stale of a registry that runs after another one.
func Remembered(live client.Reader) client.Reader { return remembered{live} }

type remembered struct{ client.Reader }

func (r remembered) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, o, append(slices.Clip(options), &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})...)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, key, o, options...)
	}
	return err
}
