// Package vectortest finds the test vectors for tests outside of their own module.
package vectortest

import (
	"os"
	"path/filepath"
	"testing"
)

// Folder is a folder of module vectors, in the checkout that the test runs in. Where there is
// none, as in the module cache, the test is skipped.
func Folder(t testing.TB, elem ...string) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "vectors", "go.mod")); err == nil {
			return filepath.Join(append([]string{dir, "vectors"}, elem...)...)
		}
		if root, err := filepath.Abs(dir); err != nil || root == filepath.Dir(root) {
			t.Skip("the test vectors are a module of their own, whose folder vectors is in no folder above this one")
		}
	}
}
