"""torch's own files read by tconv, and tconv's by torch."""
import pt_reading
import pt_writing


def run(checks, tconv):
    pt_reading.run(checks, tconv)
    pt_writing.run(checks, tconv)
