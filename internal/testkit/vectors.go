package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

// VectorFolder returns the path of a folder of module vectors in this checkout. The test is
// skipped in the module cache, which has none.
func VectorFolder(t testing.TB, elem ...string) string {
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
