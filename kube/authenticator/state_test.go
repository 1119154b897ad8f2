package authenticator

import "testing"

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"client.pem":{"failures":3,"last":"2026-01-02T15:04:05Z","next":"2026-01-02T15:04:09Z","error":"x"}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"client.pem":{"failures":-9223372036854775808}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, a := range parseState(text) {
			if a.Failures < 0 {
				t.Error("fewer than none")
			}
			if d := pause(a.Failures, nil); d <= 0 || d > lastPause {
				t.Errorf("a pause of %s", d)
			}
		}
	})
}
