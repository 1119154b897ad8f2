package attest

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/message"
)

const testDigest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseIdentity(t *testing.T) {
	good := []string{"ek:sha256:" + testDigest, "ak:sha256:" + testDigest, "gce:p/0", "aws:aws/us-east-2/i-0123456789abcdef0", "gce:example.com:p/18446744073709551615",
		"othername:1.2.3:MAA", "othername:2.25.274969308675442717258829974567625345604:BQA", "othername:ca-1.example/1.2.3:MAA", "row:7", "a-1:x:y/z",
		"hwserial:a/STM%20:1A:4D", "hwserial:a-1.b/%00%FF", "chassis:a/P-1/S", "chassis:a/p%2Fq/PID:x%20SN:y", "a0:x", "z9:x", "a::x", "sha:1", "x:" + strings.Repeat("y", message.MaxIdentitySize-2)}
	for _, s := range good {
		if id, err := ParseIdentity(s); err != nil || string(id) != s {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
	const uuid = "8a205152-b25a-417f-a676-80465535a6c9"
	for _, s := range []string{"azure:" + uuid + "/" + uuid, "azure:" + strings.ToUpper(uuid) + "/" + uuid, "azure:" + uuid + "/" + strings.ToUpper(uuid)} {
		if id, err := ParseIdentity(s); err != nil || id != "azure:"+uuid+"/"+uuid {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
	for _, s := range []string{"azure:" + uuid, "azure:" + uuid + "/", "azure:/" + uuid, "azure:" + uuid + "/" + uuid + "/" + uuid, "azure:" + uuid + "/" + uuid[1:], "azure:" + uuid + "/" + uuid + "0",
		"azure:" + uuid + "/" + strings.Replace(uuid, "8a", "8g", 1), "azure:" + uuid + "/" + strings.ReplaceAll(uuid, "-", "0"), "azure:" + uuid + "/8a205152b-25a-417f-a676-80465535a6c9", "azure:" + uuid + "/" + strings.Replace(uuid, "b", "-", 1), "azure:" + uuid + "/" + strings.Replace(uuid, "a6c9", "--c9", 1)} {
		if id, err := ParseIdentity(s); !errors.Is(err, CheckIdentity) {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
	for _, s := range []string{"", ":", "x", "x:", ":x", "X:y", "1x:y", "-:y", "`:y", "{:y", "a/:y", "a,:y", "a.:y", "a_:y", "aB:y", "x y:z", "x:y z", "x:y\n", "x:\xff", "x:" + strings.Repeat("y", message.MaxIdentitySize-1),
		"ek:" + testDigest, "sha256:00", "sha256:" + testDigest, "sha1:00", "sha384:00", "sha512:00", "ek:sha1:" + testDigest, "ek:sha256:" + testDigest + "00", "ek:sha256:" + testDigest[1:], "ak:sha256:" + strings.ToUpper(testDigest),
		"ek:sha256:" + strings.Repeat("g", 64), "gce:p", "gce:/1", "gce:p/", "gce:p/01", "gce:p/-1", "gce:p/+1", "gce:p/18446744073709551616", "gce:p/1/2",
		"othername:1.2.3", "othername:1.2.3:", "othername:1.02.3:MAA", "othername::MAA", "othername:1.2.3:MAA=", "othername:1.2.3:MA+", "othername:1.2.3:MAB",
		"othername:1.2.3:MA\nA", "othername:1.2.3:MAA\r\n", "othername:CA/1.2.3:MAA", "othername:/1.2.3:MAA", "othername:ca:1/1.2.3:MAA", "othername:a/b/1.2.3:MAA",
		"othername:" + strings.Repeat("a", 64) + "/1.2.3:MAA",
		"hwserial:x", "hwserial:/x", "hwserial:A/x", "hwserial:a/", "hwserial:a/x/y", "hwserial:a/%", "hwserial:a/%2", "hwserial:a/%41", "hwserial:a/%2f", "hwserial:a/\x7f", "hwserial:a/ä",
		"chassis:a/x", "chassis:a/x/", "chassis:a//y", "chassis:/x/y", "chassis:a/x/y/z", "chassis:a/x/%zz", "chassis:a/x,y/z"} {
		if id, err := ParseIdentity(s); !errors.Is(err, CheckIdentity) {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
}
