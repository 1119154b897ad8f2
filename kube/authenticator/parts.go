package authenticator

import "time"

// parts are the parts of an attempt's duration that others take, for its line in the log. The rest is this program's
// own work and its disk.
type parts struct {
	evidence   time.Duration // of the machine: the TPM's commands, for example
	network    time.Duration // of connections, and of the requests that the API server answers at once
	controller time.Duration // from a request that is filed to the control plane's decision, or to the certificate
}

// measure adds the duration of a call to a part.
func measure[T any](part *time.Duration, call func() (T, error)) (T, error) {
	began := time.Now()
	defer func() { *part += time.Since(began) }()
	return call()
}

// fields returns the fields of a line of the log.
func (p *parts) fields() []any {
	return []any{"evidence", p.evidence.String(), "network", p.network.String(), "controller", p.controller.String()}
}
