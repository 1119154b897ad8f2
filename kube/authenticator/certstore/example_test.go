package certstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// Writers take turns, and readers need no lock.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := certstore.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := store.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = store.TryLock()
	fmt.Println("another writer:", err)
	err = errors.Join(lock.Write("state.json", []byte("{}\n")), lock.Unlock())
	fmt.Println("written:", err == nil)
	_, err = store.ReadPair("client.pem")
	fmt.Println("a certificate:", !errors.Is(err, fs.ErrNotExist))
	// Output:
	// another writer: the lock is held
	// written: true
	// a certificate: false
}
