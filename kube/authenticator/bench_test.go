package authenticator

import (
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// timed is a TPM that measures how long it is at work.
type timed struct {
	transport.TPMCloser
	took time.Duration
}

func (d *timed) Send(command []byte) ([]byte, error) {
	began := time.Now()
	defer func() { d.took += time.Since(began) }()
	return d.TPMCloser.Send(command)
}

// BenchmarkAttest is hello, challenge, answer and certificate over HTTPS and swtpm, the
// control plane's work included. The metric ms-without-TPM leaves out the TPM's time:
// the budget is 150.
func BenchmarkAttest(b *testing.B) {
	f := newFakeAPI(b)
	device := tpmsim.Swtpm(b, tpmsim.Options{PersistEKs: true})
	clock := &timed{}
	a, counted := tpmNode(b, f, device, nil)
	clock.TPMCloser = lent{counted}
	a.config.Kind.(*TPM).Device = func() (transport.TPMCloser, error) { return clock, nil }
	for b.Loop() {
		testkit.MustDo(a.Rotate(b.Context()))
	}
	b.ReportMetric(float64((b.Elapsed()-clock.took).Microseconds())/1000/float64(b.N), "ms-without-TPM")
}

// BenchmarkStored is a run of the plugin with a usable stored certificate.
func BenchmarkStored(b *testing.B) {
	a, _ := newNode(b, newFakeAPI(b), nil)
	testkit.Must(a.Credential(b.Context()))
	b.ReportAllocs()
	for b.Loop() {
		testkit.Must(a.Credential(b.Context()))
	}
}
