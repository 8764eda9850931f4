package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
)

var (
	// ErrIdentity: an encrypted backup cannot be read.
	ErrIdentity = errors.New("the backup is encrypted: name a file with an identity of one of its recipients (--backup-identity)")
	errSealed   = errors.New("a backup is encrypted as a whole or not at all: choose an empty place, or its recipients (--backup-recipient)")
	errPlain    = errors.New("the backup is not encrypted, but an identity is given: is it the right one?")
)

// Recipients returns the recipients that are named: each as age1…, or as a file that lists some.
func Recipients(names []string) (all []age.Recipient, err error) {
	for _, name := range names {
		lines := io.Reader(strings.NewReader(name))
		if !strings.HasPrefix(name, "age1") {
			file, err := readKeys(name)
			if err != nil {
				return nil, err
			}
			lines = bytes.NewReader(file)
		}
		some, err := age.ParseRecipients(lines)
		if err != nil {
			return nil, fmt.Errorf("%s is no recipient of age, and no file of them: %w", name, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// Identities returns those of a file that age-keygen wrote, none for "".
func Identities(path string) ([]age.Identity, error) {
	if path == "" {
		return nil, nil
	}
	file, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	all, err := age.ParseIdentities(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("%s is no file of identities of age: %w", path, err)
	}
	return all, nil
}

// readKeys reads a file of keys. Its error does not repeat a key that is given in place of a file.
func readKeys(path string) ([]byte, error) {
	if strings.HasPrefix(strings.ToUpper(path), "AGE-SECRET-KEY-") {
		return nil, errors.New("an identity of age must be in a file")
	}
	return os.ReadFile(path)
}

// seal returns write with its output encrypted, if the archive has recipients.
func (a archive) seal(write func(io.Writer) error) func(io.Writer) error {
	if len(a.recipients) == 0 {
		return write
	}
	return func(w io.Writer) error {
		sealed, err := age.Encrypt(w, a.recipients...)
		if err != nil {
			return err
		}
		return errors.Join(write(sealed), sealed.Close())
	}
}

// unseal returns what a file of the place holds. With identities, a file that is not encrypted is damaged. Anyone who
// can write to the place can still replace the whole backup: nothing signs it. Errors: ErrIdentity, ErrDamaged.
func (a archive) unseal(file io.Reader) (io.Reader, error) {
	if len(a.identities) == 0 {
		return file, nil
	}
	plain, err := age.Decrypt(file, a.identities...)
	if mismatch := (*age.NoIdentityMatchError)(nil); errors.As(err, &mismatch) {
		return nil, fmt.Errorf("%w: none of these is", ErrIdentity)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return plain, nil
}
