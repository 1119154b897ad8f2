package tpmsim

// Error is a condition of this package that a caller may want to detect with errors.Is.
// The errors that functions return wrap one of the constants and add details.
type Error string

// Error returns the condition's text.
func (e Error) Error() string { return "tpmsim: " + string(e) }

const (
	// ErrNoCGO: the program was built without cgo, so there is no in-process
	// simulator. [OpenSwtpm] works without cgo.
	ErrNoCGO Error = "built without cgo: the reference simulator is C code and needs a C compiler, " +
		"the OpenSSL headers (Debian: apt-get install gcc libssl-dev) and CGO_ENABLED=1"

	// ErrInUse: a process has only one in-process simulator, and it is already open.
	ErrInUse Error = "the simulator is in use, and a process has only one"

	// ErrClosed: the TPM was closed.
	ErrClosed Error = "the TPM is closed"

	// ErrNoSwtpm: the swtpm program is not installed.
	ErrNoSwtpm Error = "swtpm is not installed (Debian: apt-get install swtpm)"

	// ErrOptions: the options contradict each other or ask for something that the chosen
	// emulator cannot do.
	ErrOptions Error = "unusable options"

	// ErrDropped: a [FaultyTPM] lost its connection.
	ErrDropped Error = "the connection to the TPM was dropped by a fault"

	// ErrInjected: the default error of an injected [Fault].
	ErrInjected Error = "injected fault"
)
