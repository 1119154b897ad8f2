package tpmsim

import "errors"

// ErrNoCGO says that the program was built without cgo, so there is no in-process simulator. [Swtpm]
// works without cgo.
var ErrNoCGO = errors.New("tpmsim: built without cgo: the reference simulator is C code and needs a C compiler, " +
	"the OpenSSL headers (Debian: apt-get install gcc libssl-dev) and CGO_ENABLED=1")

// ErrInUse says that a process has only one in-process simulator, and it is already open.
var ErrInUse = errors.New("tpmsim: the simulator is in use, and a process has only one")

// ErrDropped says that a [FaultyTPM] lost its connection.
var ErrDropped = errors.New("tpmsim: the connection to the TPM was dropped by a fault")

// ErrInjected is the default error of an injected [Fault].
var ErrInjected = errors.New("tpmsim: injected fault")

var (
	errClosed  = errors.New("tpmsim: the TPM is closed")
	errNoSwtpm = errors.New("tpmsim: swtpm is not installed (Debian: apt-get install swtpm)")
)
