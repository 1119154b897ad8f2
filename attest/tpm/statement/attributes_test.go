package statement

import (
	"fmt"
	"testing"

	"github.com/google/go-tpm/tpm2"
)

func TestAttributesString(t *testing.T) {
	for _, row := range []struct {
		a    Attributes
		want string
	}{
		{0, "none"},
		{AttributeSign, "sign"},
		{0x40040, "userWithAuth|sign"},
		{0x50072, "fixedTPM|fixedParent|sensitiveDataOrigin|userWithAuth|restricted|sign"},
		{0x300b2, "fixedTPM|fixedParent|sensitiveDataOrigin|adminWithPolicy|restricted|decrypt"},
		{0x80000f06, "fixedTPM|stClear|firmwareLimited|svnLimited|noDA|encryptedDuplication|bit31"},
		{1, "bit0"},
		{AttributeX509Sign, "x509sign"},
	} {
		t.Run(fmt.Sprint(row.a), func(t *testing.T) {
			if got := row.a.String(); got != row.want {
				t.Errorf("%#x: got %s, want %s", uint32(row.a), got, row.want)
			}
		})
	}
}

func TestAttributesHas(t *testing.T) {
	a := AttributeSign | AttributeFixedTPM
	if !a.Has(AttributeSign) || !a.Has(a) || a.Has(AttributeSign|AttributeDecrypt) || !a.Has(0) {
		t.Error("Has asks for every bit")
	}
	if !a.HasAny(AttributeSign|AttributeDecrypt) || a.HasAny(AttributeDecrypt) || a.HasAny(0) {
		t.Error("HasAny asks for one bit")
	}
}

// TestAttributesAgainstGoTPM holds every bit against go-tpm's field of that name.
func TestAttributesAgainstGoTPM(t *testing.T) {
	for bit, v := range map[Attributes]tpm2.TPMAObject{
		AttributeFixedTPM:             {FixedTPM: true},
		1 << 2:                        {STClear: true},
		AttributeFixedParent:          {FixedParent: true},
		AttributeSensitiveDataOrigin:  {SensitiveDataOrigin: true},
		AttributeUserWithAuth:         {UserWithAuth: true},
		1 << 7:                        {AdminWithPolicy: true},
		1 << 8:                        {FirmwareLimited: true},
		1 << 10:                       {NoDA: true},
		AttributeEncryptedDuplication: {EncryptedDuplication: true},
		AttributeRestricted:           {Restricted: true},
		AttributeDecrypt:              {Decrypt: true},
		AttributeSign:                 {SignEncrypt: true},
		AttributeX509Sign:             {X509Sign: true},
	} {
		b := tpm2.Marshal(v)
		if got := Attributes(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])); got != bit {
			t.Errorf("%v: go-tpm has %v", bit, got)
		}
	}
}
