package tpmsim_test

import (
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestTmp(t *testing.T) {
	for range 3 {
		s := time.Now()
		tpm, err := tpmsim.Open(nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log("open", time.Since(s))
		s = time.Now()
		t.Log(tpmsim.LoadedHandles(tpm))
		if _, err := tpmsim.Open(nil); err == nil {
			t.Fatal()
		} else {
			t.Log(err)
		}
		t.Log(tpm.Close(), time.Since(s))
		s = time.Now()
		tpm = tpmsim.Swtpm(t, nil)
		t.Log("swtpm", time.Since(s))
		s = time.Now()
		t.Log(tpmsim.LoadedHandles(tpm))
		t.Log(tpm.Close(), time.Since(s))
	}
	for range 6 {
		s := time.Now()
		tpm, err := tpmsim.Open(&tpmsim.Options{Seed: []byte("a")})
		if err != nil {
			t.Fatal(err)
		}
		t.Log("seeded open", time.Since(s))
		tpm.Close()
	}
}
