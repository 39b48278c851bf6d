"""A small ray-free renderer: textured boxes, tins and sheets on a floor before a wall, seen by a pinhole camera.

Units are decimetres; x to the right, y up, z away from the camera, the floor at y = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SUPERSAMPLING = 2
NEAR = 0.2
LIGHT = np.array([-0.45, 0.75, -0.5]) / np.linalg.norm([-0.45, 0.75, -0.5])


@dataclass
class Camera:
    """Where we look from and to; `turn` rolls the camera, in degrees."""

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    size: tuple[int, int] = (640, 480)
    view: float = 42.0  # degrees across
    turn: float = 0.0

    def matrix(self):
        """(3, 4) from homogeneous points to homogeneous pixels of the supersampled picture; the third is depth."""
        forward = np.subtract(self.target, self.eye)
        forward = forward / np.linalg.norm(forward)
        right = np.cross([0, 1, 0], forward)
        right /= np.linalg.norm(right)
        up = np.cross(forward, right)
        c, s = math.cos(math.radians(self.turn)), math.sin(math.radians(self.turn))
        right, up = right * c + up * s, up * c - right * s
        width, height = (side * SUPERSAMPLING for side in self.size)
        focal = width / 2 / math.tan(math.radians(self.view) / 2)
        turned = np.array([focal * right + width / 2 * forward, -focal * up + height / 2 * forward, forward])
        return np.column_stack([turned, -turned @ np.asarray(self.eye)])

    def outline(self, points):
        """Pixels (K, 2) of the part of a flat polygon that lies before the camera; None where nothing does."""
        seen = np.column_stack([points, np.ones(len(points))]) @ self.matrix().T
        kept = []
        for here, after in zip(seen, np.roll(seen, -1, axis=0), strict=True):
            if here[2] > NEAR:
                kept.append(here)
            if (here[2] > NEAR) != (after[2] > NEAR):
                kept.append(here + (after - here) * (NEAR - here[2]) / (after[2] - here[2]))
        return np.array([point[:2] / point[2] for point in kept]) if len(kept) > 2 else None


@dataclass
class Face:
    """A rectangle: corners top left, top right, bottom right, bottom left as its texture reads."""

    corners: np.ndarray
    texture: Image.Image
    shade: float = 1.0

    @property
    def normal(self):
        normal = np.cross(self.corners[1] - self.corners[0], self.corners[3] - self.corners[0])
        return normal / (np.linalg.norm(normal) or 1.0)


@dataclass
class Thing:
    """Faces around the origin, their base at y = 0, with the footprint that casts the shadow."""

    faces: list[Face]
    footprint: np.ndarray

    def placed(self, x, z, turn=0.0, y=0.0):
        """Turned about the vertical (degrees) and moved."""
        angle = math.radians(turn)
        rotation = np.array([[math.cos(angle), 0, math.sin(angle)], [0, 1, 0], [-math.sin(angle), 0, math.cos(angle)]])
        return Thing(
            [Face(face.corners @ rotation.T + [x, y, z], face.texture, face.shade) for face in self.faces],
            self.footprint @ rotation.T + [x, y, z],
        )

    def lying(self):
        """Tipped on its back: the front looks up."""
        rotation = np.array([[1, 0, 0], [0, 0, -1], [0, 1, 0]], dtype=float)
        corners = np.concatenate([face.corners for face in self.faces]) @ rotation.T
        low, high = corners.min(0), corners.max(0)
        middle = np.array([(low[0] + high[0]) / 2, low[1], (low[2] + high[2]) / 2])
        faces = [Face(face.corners @ rotation.T - middle, face.texture) for face in self.faces]
        w, _, d = (high - low) / 2
        return Thing(faces, np.array([[-w, 0, -d], [w, 0, -d], [w, 0, d], [-w, 0, d]]))


def plain(colour):
    return Image.new("RGB", (16, 16), colour)


def carton(front, side, width, height, depth, top=(225, 215, 195)):
    """A box that stands; its front looks at the camera."""
    w, d = width / 2, depth / 2
    quads = [
        (front, [(-w, height, -d), (w, height, -d), (w, 0, -d), (-w, 0, -d)]),
        (side, [(w, height, -d), (w, height, d), (w, 0, d), (w, 0, -d)]),
        (side, [(-w, height, d), (-w, height, -d), (-w, 0, -d), (-w, 0, d)]),
        (front, [(w, height, d), (-w, height, d), (-w, 0, d), (w, 0, d)]),
        (plain(top), [(-w, height, d), (w, height, d), (w, height, -d), (-w, height, -d)]),
        (plain(top), [(-w, 0, -d), (w, 0, -d), (w, 0, d), (-w, 0, d)]),
    ]
    footprint = np.array([[-w, 0, -d], [w, 0, -d], [w, 0, d], [-w, 0, d]])
    return Thing([Face(np.array(corners, dtype=float), texture) for texture, corners in quads], footprint)


def tin(label, radius, height, lid=(190, 180, 160), strips=48):
    """A cylinder; the middle of the label looks at the camera."""
    faces = []
    for k in range(strips):
        angles = [2 * math.pi * (k + step) / strips + math.pi / 2 for step in (0, 1)]
        (x0, z0), (x1, z1) = [(radius * math.cos(a), radius * math.sin(a)) for a in angles]
        left, right = [label.width * (k + step) / strips for step in (0, 1)]
        piece = label.crop((int(left), 0, max(int(right), int(left) + 1), label.height))
        corners = [(x0, height, z0), (x1, height, z1), (x1, 0, z1), (x0, 0, z0)]
        faces.append(Face(np.array(corners, dtype=float), piece))
    ring = np.array([[radius * math.cos(a), 0, radius * math.sin(a)] for a in np.linspace(0, 2 * math.pi, 25)[:-1]])
    disc = Image.new("RGBA", (128, 128))
    ImageDraw.Draw(disc).ellipse((0, 0, 127, 127), fill=lid, outline=tuple(int(c * 0.7) for c in lid), width=6)
    r = radius
    corners = [(-r, height, r), (r, height, r), (r, height, -r), (-r, height, -r)]
    faces.append(Face(np.array(corners, dtype=float), disc))
    return Thing(faces, ring)


def sheet(picture, width, thickness=0.03):
    """A sheet that lies on the floor, its top away from the camera."""
    w, d = width / 2, width / 2 * picture.height / picture.width
    corners = np.array([[-w, thickness, d], [w, thickness, d], [w, thickness, -d], [-w, thickness, -d]])
    return Thing([Face(corners, picture)], corners * [1, 0, 1])


def hung(picture, width):
    """A picture on a wall that faces the camera; its lower edge at y = 0."""
    w, h = width / 2, width * picture.height / picture.width
    corners = np.array([[-w, h, 0], [w, h, 0], [w, 0, 0], [-w, 0, 0]], dtype=float)
    return Thing([Face(corners, picture)], np.zeros((0, 3)))


@dataclass
class Scene:
    """What stands where, and in what light."""

    camera: Camera
    things: list[Thing]
    floor: Image.Image | None = None
    wall: Image.Image | None = None
    backdrop: Image.Image | None = None  # a photograph far behind everything
    wall_at: float = 14.0
    light: tuple[float, float, float] = (1.0, 1.0, 1.0)
    contrast: float = 1.0
    blur: float = 0.0
    noise: float = 3.0
    falloff: float = 0.0  # darker towards the right edge
    shadows: list[float] = field(default_factory=lambda: [0.55])

    def render(self, seed):
        """The finished photograph."""
        width, height = (side * SUPERSAMPLING for side in self.camera.size)
        canvas = Image.new("RGB", (width, height), (206, 202, 196))
        if self.backdrop:
            canvas.paste(self.backdrop.convert("RGB").resize((width, height), Image.Resampling.LANCZOS))
        span, far = 16.0, self.wall_at
        if self.wall:
            self._draw(canvas, Face(np.array([[-span, 12, far], [span, 12, far], [span, 0, far], [-span, 0, far]]),
                                    self.wall))  # fmt: skip
        if self.floor:
            near = -span
            self._draw(canvas, Face(np.array([[-span, 0, far], [span, 0, far], [span, 0, near], [-span, 0, near]]),
                                    self.floor))  # fmt: skip
        if self.floor:
            self._cast_shadows(canvas)
        faces = [face for thing in self.things for face in thing.faces]
        eye = np.asarray(self.camera.eye)
        faces = [face for face in faces if (face.corners.mean(0) - eye) @ face.normal < 0]
        for face in sorted(faces, key=lambda face: -np.linalg.norm(face.corners.mean(0) - eye)):
            face.shade = 0.62 + 0.45 * max(0.0, float(face.normal @ LIGHT))
            self._draw(canvas, face)
        return self._developed(canvas, seed)

    def _draw(self, canvas, face):
        outline = self.camera.outline(face.corners)
        if outline is None:
            return
        low = np.floor(outline.min(0)).clip(0).astype(int)
        high = np.minimum(np.ceil(outline.max(0)) + 1, canvas.size).astype(int)
        if (high <= low).any():
            return
        texture = self._shrunk(face.texture.convert("RGBA"), outline)
        across = (face.corners[1] - face.corners[0]) / texture.width
        down = (face.corners[3] - face.corners[0]) / texture.height
        plane = np.column_stack([np.append(across, 0), np.append(down, 0), np.append(face.corners[0], 1)])
        moved = np.array([[1, 0, -low[0]], [0, 1, -low[1]], [0, 0, 1]])
        numbers = np.linalg.inv(moved @ self.camera.matrix() @ plane).ravel()
        size = tuple(int(side) for side in high - low)
        numbers = (numbers / numbers[8])[:8].tolist()
        patch = texture.transform(size, Image.Transform.PERSPECTIVE, numbers, Image.Resampling.BILINEAR)
        colours = Image.fromarray((np.asarray(patch)[..., :3] * face.shade).clip(0, 255).astype(np.uint8))
        mask = Image.new("L", size)
        ImageDraw.Draw(mask).polygon([tuple(point) for point in outline - low], fill=255)
        mask = Image.composite(patch.getchannel("A"), mask, mask)
        canvas.paste(colours, tuple(int(side) for side in low), mask)

    @staticmethod
    def _shrunk(texture, outline):
        """A texture seen from afar is made smaller first, or it flickers."""
        if len(outline) != 4:
            return texture
        spans = np.linalg.norm(np.roll(outline, -1, axis=0) - outline, axis=1)
        across = max(1.0, texture.width / max(1.0, spans[[0, 2]].max()))
        down = max(1.0, texture.height / max(1.0, spans[[1, 3]].max()))
        size = (max(1, round(texture.width / across)), max(1, round(texture.height / down)))
        return texture.resize(size, Image.Resampling.LANCZOS) if size != texture.size else texture

    def _cast_shadows(self, canvas):
        mask = Image.new("L", canvas.size)
        draw = ImageDraw.Draw(mask)
        for thing in self.things:
            if not len(thing.footprint) or thing.footprint[:, 1].max() > 1e-6:
                continue
            tall = max(face.corners[:, 1].max() for face in thing.faces)
            for step in np.linspace(0, 0.35, 6):
                moved = thing.footprint + step * min(tall, 2.5) * np.array([0.8, 0, 0.5])
                outline = self.camera.outline(moved)
                if outline is not None:
                    draw.polygon([tuple(point) for point in outline], fill=255)
        mask = mask.filter(ImageFilter.GaussianBlur(9 * SUPERSAMPLING))
        dark = Image.eval(canvas, lambda value: int(value * self.shadows[0]))
        canvas.paste(dark, (0, 0), mask)

    def _developed(self, canvas, seed):
        rng = np.random.default_rng(seed)
        picture = canvas.resize(self.camera.size, Image.Resampling.LANCZOS)
        if self.blur:
            picture = picture.filter(ImageFilter.GaussianBlur(self.blur))
        values = np.asarray(picture, dtype=float) / 255
        values = ((values - 0.5) * self.contrast + 0.5) * self.light
        values *= 1 - self.falloff * np.linspace(0, 1, values.shape[1])[None, :, None]
        values += rng.normal(0, self.noise / 255, values.shape)
        return Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))
