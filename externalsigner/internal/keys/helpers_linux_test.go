package keys

import (
	"os"
	"syscall"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// mknod replaces a file by a device or a pipe.
func mknod(path string, mode uint32, device int) {
	_ = os.Remove(path)
	testkit.MustDo(syscall.Mknod(path, mode, device))
}
