package strictjson

import "strconv"

// Number reads a number and returns its text, which shares memory with the text that is
// read. A number whose magnitude is over the largest float64 is refused with [ErrRange]:
// encoding/json refuses it too where nothing says what type it is to have.
func (r *Reader) Number() ([]byte, error) {
	if err := r.want(NumberKind); err != nil {
		return nil, err
	}
	start := r.pos
	r.accept("-")
	if !r.accept("0") && r.digits() == 0 {
		return nil, r.syntax()
	}
	if r.accept(".") && r.digits() == 0 {
		return nil, r.syntax()
	}
	if r.accept("eE") {
		r.accept("+-")
		if r.digits() == 0 {
			return nil, r.syntax()
		}
	}
	text := r.data[start:r.pos:r.pos]
	if _, err := strconv.ParseFloat(string(text), 64); err != nil {
		r.pos = start
		return nil, r.fail(ErrRange)
	}
	return text, nil
}

// Int64 reads a whole number between -2^63 and 2^63-1, written without fraction and
// exponent. Other numbers are refused with [ErrRange], even those of the same value.
func (r *Reader) Int64() (int64, error) {
	text, err := r.Number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		r.pos -= len(text)
		return 0, r.fail(ErrRange)
	}
	return n, nil
}

// accept passes over one of the bytes in set.
func (r *Reader) accept(set string) bool {
	if r.pos < len(r.data) {
		for i := range len(set) {
			if r.data[r.pos] == set[i] {
				r.pos++
				return true
			}
		}
	}
	return false
}

// digits passes over decimal digits and returns how many they are.
func (r *Reader) digits() int {
	start := r.pos
	for r.pos < len(r.data) && '0' <= r.data[r.pos] && r.data[r.pos] <= '9' {
		r.pos++
	}
	return r.pos - start
}
