"""Writes outputs: whole arrays, and files written block by block so that a killed process can resume.

`destination` names the place, `protocol` what is written and what every format fulfils, `journaled_output` what
all formats share, `formats.open_output` opens one by its suffix; `preflight` refuses before anything is
computed.
"""
